// Package spec is the executable specification of tasks: a model that runs the very functions of package taskstate that
// production runs, with a world around them that is small enough to be searched whole.
//
// It has two uses. A Model searches every order of steps, crashes, pauses, lost replies and doubled deliveries of a
// small world for a state that breaks a rule (Search); each call of a port is a step of its own. A Table is the task
// store in memory that the three databases are compared with, operation by operation.
//
// What a model leaves out is in deploy/docs/model.md. The package imports nothing but the standard library and
// its own module.
package spec

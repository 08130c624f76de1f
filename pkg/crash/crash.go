// Package crash marks the moments between two effects where a process may die.
//
// Without the build tag lab a point is nothing at all: an empty function that the compiler removes.
// In a lab build these variables make one point of one process do something:
//
//	MILLWEIR_CRASH=worker.after_claim:3:kill   at the third passage: SIGKILL to itself
//	MILLWEIR_CRASH=…:stop                      SIGSTOP to itself; somebody else wakes it
//	MILLWEIR_CRASH=…:error                     Fault returns an error there (Point ignores it)
//	MILLWEIR_CRASH=…:sleep=2s                  waits there
//	MILLWEIR_CRASH=*:1:jitter=50ms             every second passage, here of all points, waits a random time below that;
//	                                           each process of a fleet does
//	MILLWEIR_CRASH_DIR=DIR                     DIR/hits/NAME is made at the first passage of each point, and
//	                                           DIR/fired by the process that acts: only one of a fleet does, once
//
// Names are part.moment in lower_snake_case, each used at one place, so that a list of the source is a list of the points.
package crash

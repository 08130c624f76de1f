// Package gateway is the HTTP face of Millweir: routes, uploads, events, errors, access.
//
// It decides nothing about documents and tasks: every route turns a request into one or two calls of ingest.Service
// and the answer into JSON (contract §4). New makes the handler, Server.Run serves it.
//
// Packages, from the bottom: web is what all parts share (routes, problems, parameters), views turns rows into the types of
// pkg/wire; uploads, documents, tasks, topics, deadletters and operators have the routes; apidoc describes them, and a test
// compares the description with the routes. This package has the middleware and puts the parts together.
package gateway

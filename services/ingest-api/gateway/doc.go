// Package gateway is the HTTP face of Millweir: routes, uploads, events, errors, access.
//
// It decides nothing about documents and tasks: every route turns a request into one or two calls of ingest.Service
// and the answer into JSON (contract §4). New makes the handler, Server.Run serves it.
//
// Files: routes.go is the table of what exists and who may use it; problem.go and codes.go turn errors into
// problem+json; upload.go, multipart.go and accept.go take documents in; events.go streams a task's life;
// view_*.go are the JSON shapes; openapi.go serves the description, which a test compares with the routes.
package gateway

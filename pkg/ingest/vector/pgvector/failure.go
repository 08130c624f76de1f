package pgvector

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millweir/millweir/pkg/ingest"
)

var (
	// errBusy says that all connections of the pool were in use for as long as a statement may take.
	errBusy = errors.New("no connection was free")
	// errReadOnly says that the server takes no writes.
	errReadOnly = errors.New("the server is read-only")
)

// Codes of Postgres (SQLSTATE) that are told from others.
const (
	codeData         = "22000" // pgvector's for another dimension
	codeReadOnly     = "25006"
	codeNoDatabase   = "3D000"
	codeNoSchema     = "3F000"
	codeSerial       = "40001"
	codeDeadlock     = "40P01"
	codeForbidden    = "42501"
	codeNoObject     = "42704" // a type, such as vector
	codeNoFunction   = "42883" // or operator
	codeNoTable      = "42P01"
	codeConnections  = "53300"
	codeLock         = "55P03"
	codeUnsupported  = "0A000" // an extension that is not on the server
	codeNoFile       = "58P01" // the same before Postgres 15
	classConnection  = "08"
	classData        = "22"
	classLogin       = "28"
	classResources   = "53"
	classLimit       = "54"
	classShuttingOff = "57P"
)

const (
	createExtension = "In the database that PGVECTOR_URL names, run CREATE EXTENSION vector as a superuser."
	installPGVector = "Install pgvector 0.8 or later on the Postgres server that PGVECTOR_URL leads to."
	createSchema    = "As a superuser run CREATE SCHEMA " + schema + " AUTHORIZATION, with the user of PGVECTOR_URL, in its database."
)

// sqlState is Postgres' code of an error; empty: it has none.
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// isStale tells whether the collection, or the extension, is not what it was a moment ago: another process dropped it.
func isStale(err error) bool {
	switch sqlState(err) {
	case codeNoTable, codeNoSchema, codeNoObject, codeNoFunction, codeData:
		return true
	}
	return false
}

// isRetryable tells whether the same statement may succeed a moment later: all statements can be repeated.
func isRetryable(err error) bool {
	if _, known := errors.AsType[*ingest.Failure](err); known || errors.Is(err, errBusy) {
		return false
	}
	code := sqlState(err)
	switch {
	case code == "":
		return true // the connection
	case code == codeSerial, code == codeDeadlock, code == codeLock, code == codeConnections:
		return true
	}
	return strings.HasPrefix(code, classConnection) || strings.HasPrefix(code, classShuttingOff)
}

// failure gives an error the code that users and the state machine see; nil stays nil. It is that of ctx when ctx ended.
func failure(ctx context.Context, operation string, err error) error {
	if _, known := errors.AsType[*ingest.Failure](err); known || err == nil {
		return err
	}
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("pgvector: %s: %w", operation, ended)
	}
	f := ingest.Transient(ingest.CodeVector, "pgvector: %s: %w", operation, err)
	f.Remedy = remedy(err)
	if code := sqlState(err); code != codeData && strings.HasPrefix(code, classData) || strings.HasPrefix(code, classLimit) {
		f.Code, f.Permanent, f.Remedy = ingest.CodeVectorRejected, true, "The vector store refuses these rows."
	}
	return f
}

func remedy(err error) string {
	code := sqlState(err)
	switch {
	case code == codeForbidden:
		return "The user of PGVECTOR_URL lacks a right: it needs all rights on the schema " + schema + " and its tables."
	case code == codeNoDatabase, strings.HasPrefix(code, classLogin):
		return "Postgres refuses the login: check PGVECTOR_URL."
	case code == codeReadOnly, errors.Is(err, errReadOnly):
		return "The Postgres server takes no writes, as a standby does: PGVECTOR_URL must lead to the primary."
	case strings.HasPrefix(code, classResources):
		return "The Postgres server lacks disk space, memory or connections (max_connections; pool_max_conns in PGVECTOR_URL)."
	case errors.Is(err, errBusy):
		return "All connections to the vector store are in use. pool_max_conns in PGVECTOR_URL allows more."
	}
	return "The vector store could not be reached."
}

// Package labserver starts real MariaDB, Redis, Postgres (also with pgvector), Chroma, Kafka and RabbitMQ servers as plain child
// processes on 127.0.0.1, for tests, drills and "make services-up".
//
// It is no part of a product binary (archtest sees to that) and it never skips in silence: a missing server
// program is an error that names the package to install.
// It runs on Linux, as root (each server then runs as its own system user) or as any user.
//
// Tests use one shared server per test process and a database of their own in it:
//
//	func TestMain(m *testing.M) { labserver.Main(m) }
//
//	func TestX(t *testing.T) {
//		dsn := labserver.MySQLDatabase(t)
//	}
//
// A test that stops, kills or pauses its server takes one of its own with Private.
// Servers die with the test process, also when that is killed, and their folders are removed by the next run.
package labserver

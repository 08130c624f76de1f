// Package proto is the one definition of what a delivery carries: TaskEnvelope, and its forms on the wires.
//
// On Kafka and RabbitMQ an envelope is its JSON mapping (Encode, Decode); on a Redis Stream each top-level member is
// a string field of the entry (EncodeFields, DecodeFields), nested ones as JSON.
// Members that this release does not know are kept through decoding and encoding, so that a fleet of two releases
// loses nothing. A payload's numbers are JSON numbers as double precision sees them; the task's row has the exact bytes.
package proto

//go:generate protoc --go_out=. --go_opt=paths=source_relative task_envelope.proto

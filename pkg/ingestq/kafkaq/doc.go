// Package kafkaq carries deliveries over Kafka: the consumer of the group (ingestq.Consumer), the producer of the relay
// (outbox.Sender), and the making of topics.
//
// Kafka only says "look at this task". A record's offset is committed once it was acknowledged and all before it were: what was
// read and not acknowledged comes again after a crash or a rebalance, and answers skipped, busy or not due (design D4).
// Deliveries are written by the outbox's relay alone, so Publish and all that moves pending entries do nothing here.
//
// Nothing in it needs a broker that answers: clients are made at once and connect when they are used (design D16).
package kafkaq

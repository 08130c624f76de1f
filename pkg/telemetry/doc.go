// Package telemetry is what a process tells about itself: log lines that carry trace and task ids,
// traces over OTLP/HTTP with W3C context, a metrics registry, and the redaction of secrets in text.
//
// Nothing here is global except what OpenTelemetry itself keeps global (Setup);
// loggers and registries are made in main and handed down.
package telemetry

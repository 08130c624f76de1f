//go:build race

package ingestapi

func init() { underRace = true }

//go:build race

package labserver

func init() { watched = true }

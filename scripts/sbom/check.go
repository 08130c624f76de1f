package main

import (
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
)

var serial = regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// check returns what is wrong with a list, joined: fields that the standard wants, names that are not unique, references
// to nothing, and modules of the binary that are missing.
func check(list bom, info *debug.BuildInfo) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if list.Format != "CycloneDX" || list.SpecVersion != specVersion || list.Version < 1 || !serial.MatchString(list.SerialNumber) {
		wrong("header: %q %q version %d serial %q", list.Format, list.SpecVersion, list.Version, list.SerialNumber)
	}
	refs, names := map[string]bool{}, map[string]string{}
	for _, c := range append([]component{list.Metadata.Component}, list.Components...) {
		if c.Name == "" || c.Ref == "" || (c.Type != "library" && c.Type != "application") || !strings.HasPrefix(c.PURL, "pkg:golang/") {
			wrong("component without its fields: %+v", c)
		}
		if refs[c.Ref] {
			wrong("two components %s", c.Ref)
		}
		refs[c.Ref], names[c.Name] = true, c.Version
		for _, p := range c.Properties {
			if p.Name == "millweir:replaces" {
				names[p.Value] = c.Version
			}
		}
	}
	for _, d := range list.Dependencies {
		for _, ref := range append([]string{d.Ref}, d.DependsOn...) {
			if !refs[ref] {
				wrong("a dependency names %s, which is no component", ref)
			}
		}
	}
	for _, m := range info.Deps {
		version, there := names[m.Path]
		if !there {
			wrong("module %s is missing", m.Path)
		}
		if m.Replace == nil && !strings.HasPrefix(m.Path, ours) && version != m.Version {
			wrong("module %s is %s, listed as %s", m.Path, m.Version, version)
		}
	}
	if len(info.Deps) == 0 {
		wrong("the binary names no modules: was it built with -buildinfo off?")
	}
	return errors.Join(errs...)
}

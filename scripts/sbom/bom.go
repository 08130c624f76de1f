package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"runtime/debug"
	"sort"
	"strings"
)

const specVersion = "1.6"

// ours begins the paths of our own modules.
const ours = "github.com/millweir/millweir"

// bom is the part of CycloneDX 1.6 that we write.
type bom struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"` // urn:uuid:…
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"` // the binary
}

type component struct {
	Type       string     `json:"type"` // application or library
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// describe makes the list of a binary from its content and what the linker says of it.
func describe(name, version string, content []byte, info *debug.BuildInfo) bom {
	sum := sha256.Sum256(content)
	main := component{
		Type: "application", Name: name, Version: version, PURL: purl(info.Path, version),
		Ref:    purl(info.Path, version) + "#" + name,
		Hashes: []hash{{Algorithm: "SHA-256", Content: hex.EncodeToString(sum[:])}},
	}
	for _, s := range info.Settings {
		main.Properties = append(main.Properties, property{Name: "millweir:build:" + s.Key, Value: s.Value})
	}
	list := bom{
		Schema: "http://cyclonedx.org/schema/bom-" + specVersion + ".schema.json",
		Format: "CycloneDX", SpecVersion: specVersion, SerialNumber: "urn:uuid:" + uuid(sum), Version: 1,
		Metadata: metadata{Component: main},
	}
	list.Components = append(list.Components, standardLibrary(info.GoVersion))
	if info.Main.Path != "" {
		list.Components = append(list.Components, library(&info.Main, version))
	}
	for _, m := range info.Deps {
		list.Components = append(list.Components, library(m, version))
	}
	sort.Slice(list.Components, func(i, j int) bool { return list.Components[i].Ref < list.Components[j].Ref })
	needs := dependency{Ref: main.Ref}
	for _, c := range list.Components {
		needs.DependsOn = append(needs.DependsOn, c.Ref)
	}
	list.Dependencies = []dependency{needs}
	return list
}

// standardLibrary is the code of Go itself, which scanners know as the module std.
func standardLibrary(goVersion string) component {
	version := strings.TrimPrefix(strings.Fields(goVersion)[0], "go")
	return component{Type: "library", Ref: purl("std", version), Name: "std", Version: version, PURL: purl("std", version)}
}

// library is one module; ours have the version of the binary, for they are built from the same commit.
func library(m *debug.Module, own string) component {
	name := m.Path
	if m.Replace != nil && m.Replace.Version != "" {
		m = m.Replace // another module in its place; a local folder has no version
	}
	version := m.Version
	if strings.HasPrefix(name, ours) {
		version = own
	}
	c := component{Type: "library", Name: m.Path, Version: version}
	if strings.HasPrefix(name, ours) {
		c.Name = name
	}
	c.PURL = purl(c.Name, version)
	c.Ref = c.PURL
	if m.Sum != "" {
		c.Properties = append(c.Properties, property{Name: "millweir:go.sum", Value: m.Sum})
	}
	if c.Name != name {
		c.Properties = append(c.Properties, property{Name: "millweir:replaces", Value: name})
	}
	return c
}

// purl is a module's package URL; a development version has none.
func purl(path, version string) string {
	u := "pkg:golang/" + path
	if version == "" || version == "(devel)" {
		return u
	}
	return u + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}

// uuid is made of a sum, in the form of RFC 9562's version 8 (the maker's own).
func uuid(sum [sha256.Size]byte) string {
	b := sum[:16]
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

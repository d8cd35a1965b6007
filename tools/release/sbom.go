package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// bom is the part of a CycloneDX 1.5 document that a release uses.
type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Licenses   []license  `json:"licenses,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type license struct {
	Expression string `json:"expression"`
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
	DependsOn []string `json:"dependsOn"`
}

// sbom lists the modules in a binary, as the Go tool recorded them there: the same as
// `go version -m`. The licences are those of NOTICE.
func (r *release) sbom(path, platform string) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	licences, err := r.licences()
	if err != nil {
		return nil, err
	}
	self := component{Type: "application", Ref: "leased", Name: info.Main.Path, Version: r.version,
		PURL: purl(info.Main.Path, r.version), Licenses: []license{{"Apache-2.0"}},
		Hashes:     []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(binary))}},
		Properties: []property{{"leased:platform", platform}, {"leased:commit", setting(info, "vcs.revision")}}}
	b := bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{r.time.Format(time.RFC3339), self}}
	standard := strings.TrimPrefix(info.GoVersion, "go")
	b.Components = append(b.Components, component{Type: "library", Ref: "std", Name: "std", Version: standard, PURL: purl("std", standard),
		Licenses: []license{{"BSD-3-Clause"}}})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		licence := licences[m.Path]
		if licence == "" {
			return nil, fmt.Errorf("NOTICE has no licence of %s; run make notice", m.Path)
		}
		b.Components = append(b.Components, component{Type: "library", Ref: m.Path, Name: m.Path, Version: m.Version, PURL: purl(m.Path, m.Version),
			Licenses: []license{{licence}}, Properties: []property{{"go:sum", m.Sum}}})
	}
	all := dependency{Ref: "leased"}
	for _, c := range b.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	slices.Sort(all.DependsOn)
	b.Dependencies = []dependency{all}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(b)
	return text.Bytes(), err
}

// purl returns the package URL of a Go module.
func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// licences returns the licence of each module in NOTICE.
func (r *release) licences() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "NOTICE"))
	if err != nil {
		return nil, err
	}
	return parseNotice(string(text)), nil
}

// parseNotice reads lines of the form "MODULE VERSION, LICENCE[, COPYRIGHT]".
func parseNotice(text string) map[string]string {
	licences := map[string]string{}
	for line := range strings.Lines(text) {
		module, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		fields := strings.SplitN(rest, ", ", 3)
		if strings.Contains(module, ".") && strings.HasPrefix(rest, "v") && len(fields) > 1 {
			licences[module] = fields[1]
		}
	}
	return licences
}

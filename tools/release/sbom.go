package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

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
	notice, err := os.ReadFile(filepath.Join(r.root, "NOTICE"))
	if err != nil {
		return nil, err
	}
	licences := parseNotice(string(notice))
	self := component(cdx.ComponentTypeApplication, info.Main.Path, r.version, "Apache-2.0")
	self.BOMRef = "leased"
	self.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(binary))}}
	self.Properties = &[]cdx.Property{{Name: "leased:platform", Value: platform},
		{Name: "leased:commit", Value: settings(info)["vcs.revision"]}}
	standard := component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause")
	all, refs := []cdx.Component{standard}, []string{standard.BOMRef}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if licences[m.Path] == "" {
			return nil, fmt.Errorf("NOTICE has no licence of %s; run make notice", m.Path)
		}
		c := component(cdx.ComponentTypeLibrary, m.Path, m.Version, licences[m.Path])
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		all, refs = append(all, c), append(refs, c.BOMRef)
	}
	slices.Sort(refs)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &self}
	bom.Components, bom.Dependencies = &all, &[]cdx.Dependency{{Ref: self.BOMRef, Dependencies: &refs}}
	var text bytes.Buffer
	encoder := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	err = encoder.EncodeVersion(bom, cdx.SpecVersion1_5)
	return text.Bytes(), err
}

// component describes a Go module.
func component(kind cdx.ComponentType, path, version, licence string) cdx.Component {
	return cdx.Component{Type: kind, BOMRef: path, Name: path, Version: version,
		PackageURL: "pkg:golang/" + path + "@" + version, Licenses: &cdx.Licenses{{Expression: licence}}}
}

// settings returns the settings of a build.
func settings(info *debug.BuildInfo) map[string]string {
	all := map[string]string{}
	for _, s := range info.Settings {
		all[s.Key] = s.Value
	}
	return all
}

// parseNotice returns the licence of each module in NOTICE, which has lines of the form
// "MODULE VERSION, LICENCE[, COPYRIGHT]".
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

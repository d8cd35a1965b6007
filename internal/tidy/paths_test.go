package tidy

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

var pathsRule = rule{
	name: "machine-paths",
	why: "Other machines have neither these folders nor these hosts. Use relative paths, and the hosts that the " +
		"environment configures.",
	check:   checkPaths,
	samples: pathsSamples,
}

// dot is split off so that the names below do not match themselves.
const dot = "."

// registries are hosts of package registries. The environment configures which one
// is used.
var registries = []string{
	"proxy" + dot + "golang.org", "sum" + dot + "golang.org", "goproxy" + dot + "io", "goproxy" + dot + "cn",
	"registry" + dot + "npmjs.org", "registry" + dot + "yarnpkg.com",
	"pypi" + dot + "org", "pythonhosted" + dot + "org",
	"crates" + dot + "io", "rubygems" + dot + "org", "repo" + dot + "maven.apache.org", "repo1" + dot + "maven.org",
	"deb" + dot + "debian.org", "security" + dot + "debian.org", "archive" + dot + "ubuntu.com",
	"security" + dot + "ubuntu.com",
	"dl-cdn" + dot + "alpinelinux.org",
	"registry-1" + dot + "docker.io", "index" + dot + "docker.io", "jfrog" + dot + "io",
}

var (
	registry = regexp.MustCompile(`(?i)(^|[^a-z0-9-])(` + strings.ReplaceAll(strings.Join(registries, "|"), ".", `\.`) +
		`)\b`)
	// personal is an absolute path of one machine, not part of a longer path or of
	// an address.
	personal = regexp.MustCompile(`(^|[^A-Za-z0-9_.}~/-]|file://)` +
		`(/(work|root|home/[a-z][a-z0-9_-]*|Users/[A-Za-z][A-Za-z0-9._-]*)/[A-Za-z0-9_.-]*)`)
)

func checkPaths(t *tree) ([]breach, error) {
	var breaches []breach
	for path, data := range t.files {
		if bytes.IndexByte(data, 0) >= 0 || !suspicious(data) {
			continue
		}
		number := 0
		for line := range bytes.Lines(data) {
			number++
			for _, m := range registry.FindAllSubmatch(line, -1) {
				breaches = append(breaches, breach{path, number, "names the package registry " + string(m[2])})
			}
			for _, m := range personal.FindAllSubmatch(line, -1) {
				breaches = append(breaches, breach{path, number, "names the folder " + string(m[2]) + " of one machine"})
			}
		}
	}
	return breaches, nil
}

// suspicious is a fast check whether the slow expressions may match.
func suspicious(data []byte) bool {
	data = bytes.ToLower(data)
	return slices.ContainsFunc(slices.Concat(registries, []string{"work/", "root/", "home/", "users/"}),
		func(word string) bool { return bytes.Contains(data, []byte(word)) })
}

var pathsSamples = []sample{
	{
		name: "paths and hosts that are valid everywhere",
		files: map[string]string{
			"README.md": lines("See https://pkg.go.dev/net and https://example.com/"+"root/x,",
				"a/"+"work/b, ~/"+"work/x, $HOME/"+"work/x.",
				"Data lives in /var/lib/leased, ${dir}/"+"root/x, ./"+"work/x and /"+"workspace/x. On /"+"home/, anything.",
				"myproxy"+dot+"golang.orgs"),
			"logo.png": "\x00 /" + "root/x",
		},
	},
	{
		name: "paths and hosts of one machine",
		files: map[string]string{
			"README.md": lines("Run it.", "cd /"+"work/main", "Or `/"+"root/go/bin/x`.",
				"file:///"+"home/ann/x and '/"+"Users/Bob/x'"),
			"Dockerfile":    lines("ENV GOPROXY=https://proxy" + dot + "golang.org,direct"),
			"lease/a.go":    lines("package lease", `const dir = "/`+`root/x"`),
			"docs/data.txt": lines("DEB" + dot + "debian.org"),
		},
		want: []string{
			"Dockerfile:1 names the package registry",
			"README.md:2 names the folder /" + "work/main",
			"README.md:3 names the folder /" + "root/go",
			"README.md:4 names the folder /" + "Users/Bob",
			"README.md:4 names the folder /" + "home/ann",
			"docs/data.txt:1 names the package registry",
			"lease/a.go:2 names the folder",
		},
	},
}

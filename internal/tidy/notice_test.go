package tidy

import (
	"fmt"
	"slices"
	"strings"
)

var noticeRule = rule{
	name:    "notice",
	why:     "NOTICE lists the modules that leased links, with their licences. Run `make notice`.",
	check:   checkNotice,
	samples: noticeSamples,
}

// checkNotice compares the modules in NOTICE with those that the go command would
// link into cmd/leased.
func checkNotice(t *tree) ([]breach, error) {
	if !t.has("cmd/leased") {
		return nil, nil
	}
	out, err := t.goList("cmd/leased", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}")
	if err != nil {
		return nil, err
	}
	linked := strings.Split(strings.TrimSpace(out), "\n")
	linked = slices.DeleteFunc(linked, func(module string) bool { return module == "" })
	var breaches []breach
	listed := map[string]bool{}
	number := 0
	for line := range strings.Lines(string(t.files["NOTICE"])) {
		number++
		module, licence, ok := strings.Cut(strings.TrimSpace(line), ", ")
		path, version, pair := strings.Cut(module, " ")
		if !ok || !pair || !strings.Contains(path, ".") || !strings.HasPrefix(version, "v") || licence == "" {
			continue // not a line of the list
		}
		if listed[module] = true; !slices.Contains(linked, module) {
			breaches = append(breaches, breach{"NOTICE", number, fmt.Sprintf("lists %s, which is not linked", module)})
		}
	}
	for _, module := range linked {
		if !listed[module] {
			breaches = append(breaches, breach{"NOTICE", 1, fmt.Sprintf("does not list %s", module)})
		}
	}
	return breaches, nil
}

var noticeSamples = []sample{
	{
		name: "all linked modules",
		files: map[string]string{
			"go.mod": lines("module example.com/leased", "go 1.25", "require example.net/grpc v1.2.3",
				"replace example.net/grpc => ./other"),
			"other/go.mod":       lines("module example.net/grpc", "go 1.25"),
			"other/grpc.go":      lines("package grpc"),
			"cmd/leased/main.go": lines("package main", `import _ "example.net/grpc"`, "func main() {}"),
			"NOTICE": lines("leased", "Modules, each with a licence:",
				"example.net/grpc v1.2.3, MIT, Copyright (c) 2020 A. Author"),
		},
	},
	{
		name: "an old version",
		files: map[string]string{
			"go.mod": lines("module example.com/leased", "go 1.25", "require example.net/grpc v1.2.3",
				"replace example.net/grpc => ./other"),
			"other/go.mod":       lines("module example.net/grpc", "go 1.25"),
			"other/grpc.go":      lines("package grpc"),
			"cmd/leased/main.go": lines("package main", `import _ "example.net/grpc"`, "func main() {}"),
			"NOTICE":             lines("leased", "example.net/grpc v1.2.2, MIT"),
		},
		want: []string{"NOTICE:1 does not list example.net/grpc v1.2.3",
			"NOTICE:2 lists example.net/grpc v1.2.2, which is not linked"},
	},
}

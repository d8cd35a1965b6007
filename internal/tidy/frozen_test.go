package tidy

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// frozenList has a line of sha256sum for each golden file of a released format.
const frozenList = "internal/golden/released.sha256"

var frozenRule = rule{
	name: "frozen",
	why: "A golden file of a released format shows what released builds have written. Add a version of the format, " +
		"with files of its own: docs/adr/0030-frozen-formats.md.",
	check:   checkFrozen,
	samples: frozenSamples,
}

// checkFrozen compares golden files with the list. There is none before the first release.
func checkFrozen(t *tree) (breaches []breach, err error) {
	number := 0
	for line := range strings.Lines(string(t.files[frozenList])) {
		number++
		sum, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if data, ok := t.files[path]; !ok || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			breaches = append(breaches, breach{frozenList, number, fmt.Sprintf("%q was edited or removed", path)})
		}
	}
	return breaches, nil
}

var frozenSamples = []sample{
	{
		name: "unchanged, and a later version",
		files: map[string]string{
			"log/testdata/golden-v1/entry.hex": "01\n",
			"log/testdata/golden-v2/entry.hex": "02\n",
			frozenList:                         lines(sumOf("01\n") + "  log/testdata/golden-v1/entry.hex"),
		},
	},
	{
		name: "edited and removed",
		files: map[string]string{
			"log/testdata/golden-v1/entry.hex": "02\n",
			frozenList: lines(sumOf("01\n")+"  log/testdata/golden-v1/entry.hex",
				sumOf("01\n")+"  log/testdata/golden-v1/chain.hex"),
		},
		want: []string{frozenList + ":1 was edited", frozenList + ":2 was edited or removed"},
	},
}

func sumOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

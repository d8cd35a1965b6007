// Command manifests checks Kubernetes manifests against the types of the Kubernetes
// API: every field must exist and have the right type.
//
// It does not check values that only a cluster can check. Run it from the root:
//
//	go -C tools run ./manifests ../deploy/kubernetes
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kinds returns an empty object of each kind that may appear.
var kinds = map[string]func() any{
	"v1 ConfigMap":                       func() any { return new(corev1.ConfigMap) },
	"v1 Namespace":                       func() any { return new(corev1.Namespace) },
	"v1 Service":                         func() any { return new(corev1.Service) },
	"apps/v1 StatefulSet":                func() any { return new(appsv1.StatefulSet) },
	"policy/v1 PodDisruptionBudget":      func() any { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return new(networkingv1.NetworkPolicy) },
}

// kustomize is the group of files that kubectl reads itself.
const kustomize = "kustomize.config.k8s.io/"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manifests FOLDER")
		os.Exit(2)
	}
	n, err := check(os.Args[1])
	if err == nil && n == 0 {
		err = fmt.Errorf("%s contains no manifest", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("manifests: %d objects are valid\n", n)
}

// check decodes all manifests of a folder, and returns how many there are.
func check(dir string) (n int, all error) {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, document := range bytes.Split(text, []byte("\n---\n")) {
			known, err := decode(document)
			if err != nil {
				all = errors.Join(all, fmt.Errorf("%s, document %d: %w", path, i+1, err))
			}
			if known {
				n++
			}
		}
		return nil
	})
	return n, errors.Join(err, all)
}

// decode decodes one object, and reports whether it is a manifest.
func decode(document []byte) (bool, error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(document, &head); err != nil {
		return false, err
	}
	if strings.HasPrefix(head.APIVersion, kustomize) {
		return false, nil
	}
	object, ok := kinds[head.APIVersion+" "+head.Kind]
	if !ok {
		return false, fmt.Errorf("unknown kind %q of %q; add it to the list in tools/manifests", head.Kind, head.APIVersion)
	}
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return true, err
	}
	strict, err := json.UnmarshalStrict(text, object())
	return true, errors.Join(append(strict, err)...)
}

package kubelock

import "strings"

// target is what a request to the API server writes.
type target struct {
	path        string // of the object, without the subresource
	group       string
	name        string // empty for a collection
	subresource string
}

// parse reads a path such as /apis/apps/v1/namespaces/shop/deployments/web/status. A
// prefix, as of a proxy in front of the API server, stays in the path.
func parse(path string) (target, bool) {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	t, i := target{}, 0
	for ; ; i++ {
		if i+2 >= len(parts) {
			return target{}, false
		}
		if parts[i] == "api" && parts[i+1] == "v1" {
			i += 2
			break
		}
		if parts[i] == "apis" && i+3 < len(parts) {
			t.group = parts[i+1]
			i += 3
			break
		}
	}
	// Below a namespace are objects, except for the two subresources of a namespace.
	if left := parts[i:]; len(left) > 2 && left[0] == "namespaces" && left[2] != "status" && left[2] != "finalize" {
		i += 2
	}
	t.path = strings.Join(parts[:min(i+2, len(parts))], "/")
	if left := parts[i:]; len(left) > 1 {
		t.name = left[1]
		t.subresource = strings.Join(left[2:], "/")
	}
	return t, true
}

// stored tells whether the API server stores what is written. Reviews are questions, and
// followers ask them too.
func (t target) stored() bool {
	return t.group != "authentication.k8s.io" && t.group != "authorization.k8s.io"
}

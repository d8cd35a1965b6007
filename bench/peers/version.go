package peers

import "runtime/debug"

// Library returns the name and version of a Go module that this program contains, such
// as "redsync v4.18.1".
func Library(name, module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return name + " " + dep.Version
			}
		}
	}
	return name
}

//go:build linux && race

package torture

func init() { buildFlags = []string{"-race"} }

package tidy

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"os"
	"slices"
	"strings"
)

var machineOrderRule = rule{
	name: "machine-order",
	why: "The iteration order of a map differs between replicas. Iterate with the sorting helpers at the end of " +
		orderFile +
		". They are listed in internal/tidy/machineorder_test.go.",
	check:   checkMachineOrder,
	samples: machineOrderSamples,
}

// orderFile contains orderHelpers, the only functions of the machine that may
// iterate over a map. They sort the result, except unsortedHelper: an Image sorts it when it is
// encoded, without holding up the machine.
const (
	orderFile      = machineFolder + "/machine.go"
	unsortedHelper = "unsortedRequests"
)

var (
	orderHelpers = []string{"sortedKeys", "requestsOf", unsortedHelper, "sessionIDs"}
	// ordered are the functions of package maps that expose the order of a map.
	ordered = []string{"All", "Keys", "Values", "DeleteFunc", "EqualFunc"}
	// pureEngine are the functions of package lease/engine that neither read a
	// clock nor draw a random number. Methods are not checked.
	pureEngine = []string{"CheckFormat", "NewPolicies", "ParseMode", "ParseSessionID", "Special", "ValidateHolder",
		"ValidateTTL", "ValidateMetadata"}
)

// checkMachineOrder type-checks the machine, to distinguish maps from slices.
func checkMachineOrder(t *tree) ([]breach, error) {
	if !t.has(machineFolder) {
		return nil, nil
	}
	exports, err := t.exports(machineFolder)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	var sources []*source
	for _, f := range t.code {
		if f.folder == machineFolder && !f.test {
			files, sources = append(files, f.syntax), append(sources, f)
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(t.fset, "gc", exports.open)}
	if _, err := config.Check(machineFolder, t.fset, files, info); err != nil {
		return nil, fmt.Errorf("check types: %w", err)
	}
	var breaches []breach
	for _, f := range sources {
		breaches = append(breaches, t.disorder(f, info)...)
	}
	return breaches, nil
}

func (t *tree) disorder(f *source, info *types.Info) []breach {
	var breaches []breach
	for _, decl := range f.syntax.Decls {
		helper := false
		if fn, ok := decl.(*ast.FuncDecl); ok && f.path == orderFile && slices.Contains(orderHelpers, fn.Name.Name) {
			helper = true
			if !sorts(fn, info) && fn.Name.Name != unsortedHelper {
				breaches = append(breaches, f.breach(fn.Pos(), "%s iterates over a map but does not sort", fn.Name.Name))
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.RangeStmt:
				if !helper && isMap(info.TypeOf(x.X)) {
					breaches = append(breaches, f.breach(x.Pos(), "range over a map; use one of %s", strings.Join(orderHelpers, ", ")))
				}
			case *ast.Ident:
				pkg, name := function(info.Uses[x])
				switch {
				case !helper && pkg == "maps" && slices.Contains(ordered, name):
					breaches = append(breaches, f.breach(x.Pos(), "maps.%s; use one of %s", name, strings.Join(orderHelpers, ", ")))
				case pkg == t.module+"/lease/engine" && !slices.Contains(pureEngine, name):
					breaches = append(breaches, f.breach(x.Pos(), "engine.%s is not known to be free of clocks and randomness", name))
				}
			}
			return true
		})
	}
	return breaches
}

// sorts reports whether a function calls one that sorts.
func sorts(fn *ast.FuncDecl, info *types.Info) bool {
	found := false
	ast.Inspect(fn, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			pkg, name := function(info.Uses[id])
			found = found || pkg == "slices" && strings.HasPrefix(name, "Sort")
		}
		return true
	})
	return found
}

// function returns package and name of an object that is a function, not a method.
func function(o types.Object) (pkg, name string) {
	fn, ok := o.(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Signature().Recv() != nil {
		return "", ""
	}
	return fn.Pkg().Path(), fn.Name()
}

// isMap reports whether the type is a map, or a type parameter that may be one.
func isMap(t types.Type) bool {
	if param, ok := types.Unalias(t).(*types.TypeParam); ok {
		face := param.Underlying().(*types.Interface)
		for i := range face.NumEmbeddeds() {
			switch e := face.EmbeddedType(i).(type) {
			case *types.Union:
				for j := range e.Len() {
					if isMap(e.Term(j).Type()) {
						return true
					}
				}
			default:
				if isMap(e) {
					return true
				}
			}
		}
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// exports maps package paths to files with their type information.
type exports map[string]string

// exports asks the go command for the type information of a package and its
// dependencies.
func (t *tree) exports(folder string) (exports, error) {
	out, err := t.goList(folder, "-export", "-deps", "-json=ImportPath,Export")
	if err != nil {
		return nil, err
	}
	found := exports{}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		found[p.ImportPath] = p.Export
	}
}

func (e exports) open(path string) (io.ReadCloser, error) {
	if e[path] == "" {
		return nil, fmt.Errorf("no type information for package %s", path)
	}
	return os.Open(e[path])
}

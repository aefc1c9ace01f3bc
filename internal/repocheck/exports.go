// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// UnusedExports returns the exported names of the public packages in the module at dir that have no user, as "package.Name"
// or "package.Type.Method". A user is an example, or a package in another directory at the root of the module. Tests are not
// users.
//
// A name is also used if the declaration of a used name mentions it, or if it is a constant of a used type. A method is also
// used if code can call it through an interface: an interface of this module, or of a package that it imports, has a method
// of that name.
func UnusedExports(ctx context.Context, dir string) ([]string, error) {
	loaded, err := packages.Load(&packages.Config{
		Context: ctx, Dir: dir, Tests: true,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes |
			packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedModule,
	}, "./...")
	if err != nil {
		return nil, err
	}
	u := &exportUse{names: map[string]types.Object{}, used: map[string]bool{}, methods: map[string]bool{}}
	for _, p := range loaded {
		for _, e := range p.Errors {
			return nil, fmt.Errorf("load %s: %w", p.ID, e)
		}
		if p.Module == nil {
			return nil, errors.New("load packages: no module")
		}
		u.module = p.Module.Path
		u.collectInterfaces(p)
	}
	for _, p := range loaded {
		if p.ID == p.PkgPath && u.isPublic(p.PkgPath) {
			u.collectNames(p.Types)
		}
	}
	for _, p := range loaded {
		u.collectUses(p)
	}
	return u.unusedNames(), nil
}

// exportUse is the state of [UnusedExports]. It identifies an object by its objectKey, because a package that is loaded for its
// tests has objects of its own.
type exportUse struct {
	module  string
	names   map[string]types.Object // exported names of public packages
	used    map[string]bool
	methods map[string]bool // names of the methods of interfaces
	seen    map[types.Type]bool
}

// isPublic reports whether other modules can import the package path, and it is no example, tool or test.
func (u *exportUse) isPublic(path string) bool {
	switch {
	case path == u.module, strings.Contains(path+"/", "/internal/"), strings.HasSuffix(path, ".test"), strings.HasSuffix(path, "_test"):
		return false
	}
	area := u.rootDir(path)
	return area != "examples" && area != "hack" && area != "tools"
}

// rootDir returns the top-level directory of a package of the module, such as "cri" for MODULE/cri/critest, or "".
func (u *exportUse) rootDir(path string) string {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(path, "_test"), u.module+"/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	return first
}

// collectNames adds the exported names of the package p to u.names.
func (u *exportUse) collectNames(p *types.Package) {
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		u.names[objectKey(o)] = o
		if t, ok := o.(*types.TypeName); ok && !t.IsAlias() {
			for m := range methodsOf(t) {
				if m.Exported() && !types.IsInterface(t.Type()) {
					u.names[objectKey(m)] = m
				}
			}
		}
	}
}

// methodsOf yields the methods that are declared for a type.
func methodsOf(t *types.TypeName) func(func(*types.Func) bool) {
	return func(yield func(*types.Func) bool) {
		if named, ok := t.Type().(*types.Named); ok {
			for m := range named.Methods() {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// collectInterfaces adds to u.methods the method names of all interfaces in p and in the packages that p imports.
func (u *exportUse) collectInterfaces(p *packages.Package) {
	scopes := []*types.Scope{p.Types.Scope()}
	for _, imported := range p.Types.Imports() {
		scopes = append(scopes, imported.Scope())
	}
	for _, scope := range scopes {
		for _, name := range scope.Names() {
			if i, ok := scope.Lookup(name).Type().Underlying().(*types.Interface); ok {
				for m := range i.Methods() {
					// The method can be called through the interface.
					u.methods[m.Name()] = true
				}
			}
		}
	}
	for _, name := range []string{"Error", "Unwrap", "Is", "As", "String", "LogValue"} {
		u.methods[name] = true
	}
}

// collectUses marks the names to which the code of p refers, see [UnusedExports], as used.
func (u *exportUse) collectUses(p *packages.Package) {
	area := u.rootDir(p.PkgPath)
	for _, file := range p.Syntax {
		isTest := strings.HasSuffix(filepath.Base(p.Fset.Position(file.Pos()).Filename), "_test.go")
		for _, d := range file.Decls {
			function, ok := d.(*ast.FuncDecl)
			isExample := ok && isTest && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Example")
			// Examples count, other tests do not.
			if isTest && !isExample && !isExampleHelper(p, file) {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if i, ok := n.(*ast.InterfaceType); ok && !isTest {
					u.collectMethods(i)
				}
				if id, ok := n.(*ast.Ident); ok {
					o := p.TypesInfo.Uses[id]
					if o != nil && o.Pkg() != nil && (isTest || u.rootDir(o.Pkg().Path()) != area) {
						u.markUsed(o)
					}
				}
				return true
			})
		}
	}
}

// collectMethods adds the names of the methods of an interface type to u.methods. The type may be unnamed, for example in a
// type assertion.
func (u *exportUse) collectMethods(i *ast.InterfaceType) {
	for _, m := range i.Methods.List {
		for _, name := range m.Names {
			u.methods[name.Name] = true
		}
	}
}

// isExampleHelper reports whether the name of the file starts with "example_". All code in such a file is a part of an
// example.
func isExampleHelper(p *packages.Package, file *ast.File) bool {
	return strings.HasPrefix(filepath.Base(p.Fset.Position(file.Pos()).Filename), "example_")
}

// markUsed records that the object o is used, and also the types that the declaration of o mentions.
func (u *exportUse) markUsed(o types.Object) {
	k := objectKey(o)
	if u.used[k] {
		return
	}
	u.used[k] = true
	if u.seen == nil {
		u.seen = map[types.Type]bool{}
	}
	if f, ok := o.(*types.Func); ok {
		if recv := f.Signature().Recv(); recv != nil {
			u.markType(recv.Type())
		}
	}
	u.markType(o.Type())
}

// markType marks all names that occur in t as used.
func (u *exportUse) markType(t types.Type) {
	if t == nil || u.seen[t] {
		return
	}
	u.seen[t] = true
	switch t := t.(type) {
	case *types.Named:
		u.markUsed(t.Obj())
		for arg := range t.TypeArgs().Types() {
			u.markType(arg)
		}
		u.markType(t.Underlying())
	case *types.Alias:
		u.markUsed(t.Obj())
		u.markType(types.Unalias(t))
	case *types.Pointer:
		u.markType(t.Elem())
	case *types.Slice:
		u.markType(t.Elem())
	case *types.Array:
		u.markType(t.Elem())
	case *types.Chan:
		u.markType(t.Elem())
	case *types.Map:
		u.markType(t.Key())
		u.markType(t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			u.markType(v.Type())
		}
		for v := range t.Results().Variables() {
			u.markType(v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				u.markType(f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			u.markType(m.Type())
		}
	}
}

// unusedNames returns the exported names of public packages that are not used, sorted.
func (u *exportUse) unusedNames() (names []string) {
	for name, o := range u.names {
		if c, ok := o.(*types.Const); ok {
			if named, ok := c.Type().(*types.Named); ok && u.used[objectKey(named.Obj())] {
				continue
			}
		}
		if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil && u.methods[f.Name()] {
			continue
		}
		if !u.used[name] && token.IsExported(o.Name()) {
			names = append(names, strings.TrimPrefix(name, u.module+"/"))
		}
	}
	slices.Sort(names)
	return names
}

// objectKey returns the unique name of o in the module.
func objectKey(o types.Object) string {
	if o.Pkg() == nil {
		return o.Name()
	}
	// A package that is loaded a second time for its tests has the same names.
	path := strings.TrimSuffix(o.Pkg().Path(), "_test")
	if f, ok := o.(*types.Func); ok {
		if recv := f.Signature().Recv(); recv != nil {
			t := recv.Type()
			if p, ok := t.(*types.Pointer); ok {
				t = p.Elem()
			}
			if named, ok := t.(*types.Named); ok {
				return path + "." + named.Obj().Name() + "." + f.Name()
			}
		}
	}
	if v, ok := o.(*types.Var); ok && v.IsField() || o.Parent() != nil && o.Parent() != o.Pkg().Scope() {
		return path + ".(local)." + o.Name() // fields and local variables
	}
	return path + "." + o.Name()
}

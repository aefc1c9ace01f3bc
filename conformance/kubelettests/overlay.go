// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ourPackages returns the packages of nodeagent that get files of _unit, by the name of the directory in _unit.
func ourPackages() map[string]string {
	return map[string]string{"cpus": "cgroups/cpus", "numa": "cgroups/numa"}
}

// overlay is the file of the option -overlay of the go command.
type overlay struct{ Replace map[string]string }

// writeOverlay writes unit.json to the directory lab, and returns its path. It has the entries of overlay.json, the files of the directory units, and
// copies of the kubelet's files whose functions these replace.
func writeOverlay(lab, units string) (path string, err error) {
	content, err := os.ReadFile(filepath.Join(lab, "overlay.json"))
	if err != nil {
		return "", err
	}
	var o overlay
	if err := json.Unmarshal(content, &o); err != nil {
		return "", err
	}
	for _, name := range kubeletPackages() {
		if err := o.addKubelet(lab, units, name); err != nil {
			return "", err
		}
	}
	for name, dir := range ourPackages() {
		if err := o.addFiles(filepath.Join(units, name), filepath.Join("..", dir)); err != nil {
			return "", err
		}
	}
	if content, err = json.MarshalIndent(o, "", " "); err != nil {
		return "", err
	}
	path = filepath.Join(lab, "unit.json")
	return path, os.WriteFile(path, content, 0o600)
}

// addFiles adds the Go files of a directory to the package in the directory dir. A file that the package has is an error.
func (o *overlay) addFiles(from, dir string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	for _, file := range files {
		source, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.Base(file))
		if _, err := os.Stat(to); err == nil {
			return fmt.Errorf("%s: the package has a file of this name", to)
		}
		o.Replace[to] = source
	}
	return nil
}

// addKubelet adds the files of units for a package of the kubelet, and the copies of the kubelet's files. A function of units that the kubelet does not
// have is an error, unless only files of units call it: its name then starts with unit.
func (o *overlay) addKubelet(lab, units, name string) error {
	dir := filepath.Join(lab, "kubernetes/pkg/kubelet/cm", name)
	if err := o.addFiles(filepath.Join(units, name), dir); err != nil {
		return err
	}
	missing, err := listFunctions(filepath.Join(units, name))
	if err != nil {
		return err
	}
	copies := filepath.Join(lab, "unit", name)
	if err := os.RemoveAll(copies); err != nil {
		return err
	}
	if err := os.MkdirAll(copies, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	replaced := slices.Clone(missing)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		renamed, found, err := renameFunctions(source, replaced)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		missing = slices.DeleteFunc(missing, func(f string) bool { return slices.Contains(found, f) })
		if len(found) == 0 {
			continue
		}
		to := filepath.Join(copies, filepath.Base(file))
		if err := os.WriteFile(to, renamed, 0o600); err != nil {
			return err
		}
		o.Replace[file] = to
	}
	missing = slices.DeleteFunc(missing, func(f string) bool { return strings.HasPrefix(f[strings.Index(f, ".")+1:], "unit") })
	if len(missing) > 0 {
		return fmt.Errorf("package %s of the kubelet has no %s", name, strings.Join(missing, ", "))
	}
	return nil
}

// listFunctions returns the functions that the Go files of a directory declare, without those of tests.
func listFunctions(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				names = append(names, nameFunction(f))
			}
		}
	}
	return names, nil
}

// nameFunction returns the name of a function, for a method with that of its type: "staticPolicy.Start".
func nameFunction(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if ident, ok := t.(*ast.Ident); ok {
		return ident.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// renameFunctions returns the source in which the declarations of these functions have the prefix kubelet, and the functions that it declares. Calls keep
// the names.
func renameFunctions(source []byte, names []string) (renamed []byte, found []string, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	last := 0
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !slices.Contains(names, nameFunction(f)) {
			continue
		}
		found = append(found, nameFunction(f))
		at := set.Position(f.Name.Pos()).Offset
		out.Write(source[last:at])
		out.WriteString("kubelet" + strings.ToUpper(f.Name.Name[:1]) + f.Name.Name[1:])
		last = at + len(f.Name.Name)
	}
	out.Write(source[last:])
	return out.Bytes(), found, nil
}

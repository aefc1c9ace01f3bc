// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Closure has the third-party packages that each package of a module imports, directly or indirectly, without tests. Keys are
// paths relative to the repository.
type Closure map[string][]Dependency

// Dependency is a third-party package.
type Dependency struct {
	Package string
	Module  string
}

// listedPackage is the output of go list for a package.
type listedPackage struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct {
		Path string
		Main bool
	}
}

// LoadClosure runs go list in the directory dir of a module. It returns the third-party dependencies of each package in a
// build for Linux. Packages of golang.org/x/sys do not count, because they extend the standard library.
func LoadClosure(ctx context.Context, dir string) (Closure, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Standard,Imports,Module", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w\n%s", err, stderr.String())
	}
	graph := map[string]listedPackage{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read list of packages: %w", err)
		}
		graph[p.ImportPath] = p
	}
	closure := Closure{}
	for _, p := range graph {
		if p.Module != nil && p.Module.Main {
			name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
			closure[cmp.Or(name, ".")] = thirdPartyDependencies(graph, p.ImportPath)
		}
	}
	return closure, nil
}

// thirdPartyDependencies returns the third-party packages that the package root imports, directly or indirectly. graph
// contains the imports of all packages.
func thirdPartyDependencies(graph map[string]listedPackage, root string) (deps []Dependency) {
	seen := map[string]bool{root: true}
	for queue := []string{root}; len(queue) > 0; {
		p := graph[queue[0]]
		queue = queue[1:]
		if m := p.Module; m != nil && !m.Main && m.Path != "golang.org/x/sys" {
			deps = append(deps, Dependency{p.ImportPath, m.Path})
		}
		for _, next := range p.Imports {
			if !seen[next] && !graph[next].Standard {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return deps
}

// CheckBudgets reports each package that has more third-party dependencies in closure than the policy permits, and lists the
// modules of these dependencies.
func (p *Policy) CheckBudgets(closure Closure) (found []Complaint) {
	for _, name := range slices.Sorted(maps.Keys(closure)) {
		deps := closure[name]
		g, ok := p.findGrant(name)
		if !ok || g.max < 0 || len(deps) <= g.max {
			continue
		}
		perModule := map[string]int{}
		for _, d := range deps {
			perModule[d.Module]++
		}
		var modules []string
		for _, m := range slices.Sorted(maps.Keys(perModule)) {
			modules = append(modules, fmt.Sprintf("%s (%d)", m, perModule[m]))
		}
		text := fmt.Sprintf("brings %d third-party packages along, more than %d: %s",
			len(deps), g.max, strings.Join(modules, ", "))
		found = append(found, Complaint{Path: name, Text: text})
	}
	return found
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocni "github.com/containerd/go-cni"

	"github.com/seed81659283/nodeagent/cni"
)

// cniPlain are contents of configuration files that both sides load with the same result, as lists and as single plugins.
var cniPlain = []string{
	`{"name":"N","cniVersion":"1.0.0","plugins":[{"type":"bridge","x":{"y":[1]}},{"type":"portmap","capabilities":{"portMappings":true}}]}`,
	`{"name":"N","plugins":[{"type":"bridge"}]}`,
	`{"name":"N","cniVersion":"0.3.1","cniVersions":["0.4.0","1.1.0","2.0.0"],"plugins":[{"type":"bridge"}]}`,
	`{"name":"N","cniVersion":"1.1.0","disableCheck":"TRUE","disableGC":true,"plugins":[{"type":"bridge","ipam":{}}]}`,
	`{"name":"N","cniVersion":"0.4.0","type":"bridge","mtu":1400}`,
	`{"name":"N","type":"bridge","capabilities":{"bandwidth":false}}`,
}

// cniBad are invalid contents.
var cniBad = []string{
	``, `{`, `[]`, `"x"`, `null`, `{}`, `{"name":"N"}`, `{"name":"N","plugins":[]}`, `{"name":"N","plugins":[{}]}`, `{"name":"N","plugins":[null]}`,
	`{"name":1,"plugins":[{"type":"bridge"}]}`, `{"name":"N","cniVersions":["x"],"plugins":[{"type":"bridge"}]}`,
	`{"name":"N","disableGC":"maybe","plugins":[{"type":"bridge"}]}`, `{"name":"N","loadOnlyInlinedPlugins":true}`,
	`{"name":"N","plugins":[{"type":"bridge","capabilities":{"x":"y"}}]}`,
}

// cniLoaded is the result of a load: a line for each network, or an error.
type cniLoaded struct {
	networks []string
	failed   bool
}

func (l cniLoaded) String() string {
	if l.failed {
		return "fails"
	}
	return strings.Join(l.networks, "; ")
}

// cniTheirs loads the first file of a directory, or all, by go-cni.
func cniTheirs(t *testing.T, dir string, all bool) cniLoaded {
	c, err := gocni.New(gocni.WithPluginConfDir(dir), gocni.WithPluginDir([]string{dir}))
	if err != nil {
		t.Fatal(err)
	}
	load := gocni.WithDefaultConf
	if all {
		load = gocni.WithAllConf
	}
	if err := c.Load(load); err != nil {
		return cniLoaded{failed: true}
	}
	var loaded cniLoaded
	for _, n := range c.GetConfig().Networks {
		var types []string
		for _, p := range n.Config.Plugins {
			types = append(types, p.Network.Type)
		}
		loaded.networks = append(loaded.networks, fmt.Sprintf("%s %s %s %s", n.Config.Name, n.Config.CNIVersion, strings.Join(types, "+"), n.IFName))
	}
	return loaded
}

// cniOurs loads a directory by package cni. It fails if there is no network, or if strict is set and there is a problem.
func cniOurs(dir string, all, strict bool) cniLoaded {
	c := cni.NewDir(dir).Load()
	count := 1
	if all {
		count = len(c.Networks)
	}
	chosen, err := cni.ChooseNetworks(c.Networks, "", count)
	if err != nil || strict && len(c.Problems) > 0 {
		return cniLoaded{failed: true}
	}
	var loaded cniLoaded
	for i, n := range chosen {
		var types []string
		for _, p := range n.Plugins {
			types = append(types, p.Type)
		}
		loaded.networks = append(loaded.networks, fmt.Sprintf("%s %s %s eth%d", n.Name, n.Version, strings.Join(types, "+"), i))
	}
	return loaded
}

// TestCNIFiles compares the networks that package cni and containerd's go-cni load from a directory.
func TestCNIFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	root := t.TempDir()
	loaded, failed := 0, 0
	for i := range 1500 {
		dir := filepath.Join(root, fmt.Sprint(i))
		files := cniRandom(rng)
		cniWrite(t, dir, files)
		for _, all := range []bool{true, false} {
			theirs, ours := cniTheirs(t, dir, all), cniOurs(dir, all, all)
			if theirs.failed && !all { // theirs fails at an invalid first file, ours continues with the next file
				continue
			}
			if theirs.String() != ours.String() {
				t.Fatalf("all %v of %q:\ngo-cni: %s\nours:   %s", all, files, theirs, ours)
			}
			if theirs.failed {
				failed++
			} else {
				loaded++
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d directories load with the same result, %d fail", loaded, failed)
	if loaded < 500 || failed < 500 {
		t.Error("too few inputs of one kind")
	}
	testCNIDifferences(t, root)
}

// cniRandom returns the files of a directory, most of them valid.
func cniRandom(rng *rand.Rand) map[string]string {
	files := map[string]string{}
	for i := range rng.IntN(5) {
		name := fmt.Sprintf("%d-%s", rng.IntN(30), []string{"a.conflist", "b.conf", "c.json", "d.conflist", "e.bak", "f"}[rng.IntN(6)])
		content := cniPlain[rng.IntN(len(cniPlain))]
		if rng.IntN(12) == 0 {
			content = cniBad[rng.IntN(len(cniBad))]
		}
		network := fmt.Sprintf("net%d", i)
		if rng.IntN(6) == 0 {
			files[network+"/1.conf"] = `{"type":"tuning"}`
		}
		files[name] = strings.ReplaceAll(content, "N", network)
	}
	return files
}

func cniWrite(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// testCNIDifferences compares the intended differences.
func testCNIDifferences(t *testing.T, root string) {
	const good = `{"name":"good","cniVersion":"1.0.0","plugins":[{"type":"bridge"}]}`
	for _, d := range []struct {
		Name, Reason string
		files        []string
		theirs, ours string
	}{
		{
			Name: "a bad file hides no good one", Reason: "an incomplete file must not stop the node",
			files: []string{`{`, good}, theirs: "fails", ours: "good 1.0.0 bridge eth0",
		},
		{
			Name: "a name that no ADD takes", Reason: "an error for the file is better than an error for each pod",
			files: []string{`{"name":"a/b","plugins":[{"type":"bridge"}]}`, good}, theirs: "a/b  bridge eth0; good 1.0.0 bridge eth1", ours: "good 1.0.0 bridge eth0",
		},
		{
			Name: "an unknown version", Reason: "an error for the file is better than an error for each pod",
			files: []string{`{"name":"new","cniVersion":"9.0.0","plugins":[{"type":"bridge"}]}`, good}, theirs: "new 9.0.0 bridge eth0; good 1.0.0 bridge eth1", ours: "good 1.0.0 bridge eth0",
		},
		{
			Name: "a plugin type that is no file name", Reason: "an error for the file is better than an error for each pod",
			files: []string{`{"name":"path","plugins":[{"type":"../bridge"}]}`, good}, theirs: "path  ../bridge eth0; good 1.0.0 bridge eth1", ours: "good 1.0.0 bridge eth0",
		},
		{
			Name: "a name twice", Reason: "results are stored by network name, and the second attachment would overwrite the first",
			files: []string{good, good}, theirs: "good 1.0.0 bridge eth0; good 1.0.0 bridge eth1", ours: "good 1.0.0 bridge eth0",
		},
	} {
		t.Run(d.Name, func(t *testing.T) {
			dir := filepath.Join(root, d.Name)
			files := map[string]string{}
			for i, content := range d.files {
				files[fmt.Sprintf("%d.conflist", i)] = content
			}
			cniWrite(t, dir, files)
			got := []string{cniTheirs(t, dir, true).String(), cniOurs(dir, true, false).String()}
			if want := []string{d.theirs, d.ours}; !slices.Equal(got, want) {
				t.Errorf("%s: go-cni and ours load %q, want %q", d.Reason, got, want)
			}
		})
	}
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/volume"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/volume/fsgroup"
)

// Both walks leave the same modes and groups in a generated tree.
func TestFSGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing file owners needs root")
	}
	groupWalks.Run(t, flags.AtMost(2_000)) // each input has some ten files
}

// tree is a volume and the fsGroup settings of its pod.
type tree struct {
	Files    []treeFile // the first is the root
	GID      int64
	ReadOnly bool
	Policy   string
}

// treeFile is an entry of a tree.
type treeFile struct {
	Path string
	Kind string // "dir", "file", "link" or "pipe"
	Mode uint32
	GID  int
}

var groupWalks = conformance.Comparison[tree, map[string]string]{
	Make: func(c *conformance.Choices) tree {
		in := tree{GID: 1000, ReadOnly: c.OneIn(3), Policy: conformance.Pick(c, "", "Always", "OnRootMismatch", "OnRootMismatch", "Other")}
		dirs := []string{"."}
		file := func(path, kind string) {
			in.Files = append(in.Files, treeFile{path, kind, conformance.Pick[uint32](c, 0o644, 0o2770, 0o2775, 0o600, 0o660, 0o755, 0, 0o777, 0o4755, 0o2750, 0o1777, 0o6711), conformance.Pick(c, 0, 1000, 7)})
		}
		file(".", "dir")
		for i := range c.Int(10) {
			path := filepath.Join(dirs[c.Int(len(dirs))], strconv.Itoa(i))
			kind := conformance.Pick(c, "file", "dir", "link", "file", "pipe")
			if file(path, kind); kind == "dir" {
				dirs = append(dirs, path)
			}
		}
		return in
	},
	Kubelet: func(in tree) map[string]string { return in.walked(kubeletWalk) },
	Ours:    func(in tree) map[string]string { return in.walked(ourWalk) },
}

// walked creates a tree, walks it, and returns the modes and groups of its files and of the target of its links.
func (in tree) walked(walk func(root string, in tree) error) map[string]string {
	top, err := os.MkdirTemp("", "fsgroup")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(top)
	root, outside := filepath.Join(top, "volume"), filepath.Join(top, "outside")
	must(os.WriteFile(outside, nil, 0o600))
	for _, f := range in.Files {
		f.make(filepath.Join(root, f.Path), outside)
	}
	for _, f := range in.Files {
		must(os.Lchown(filepath.Join(root, f.Path), -1, f.GID))
		if f.Kind != "link" {
			must(syscall.Chmod(filepath.Join(root, f.Path), f.Mode))
		}
	}
	found := map[string]string{"error": fmt.Sprint(walk(root, in))}
	must(filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		var st syscall.Stat_t
		must(syscall.Lstat(path, &st))
		found[path[len(top):]] = fmt.Sprintf("%o of %d", st.Mode, st.Gid)
		return err
	}))
	return found
}

func (f treeFile) make(path, outside string) {
	switch f.Kind {
	case "dir":
		must(os.Mkdir(path, 0o700))
	case "file":
		must(os.WriteFile(path, nil, 0o600))
	case "link":
		must(os.Symlink(outside, path))
	default:
		must(syscall.Mkfifo(path, 0o600))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// volumeMounter returns the attributes that the kubelet's walk reads.
type volumeMounter struct {
	volume.Mounter
	readOnly bool
}

func (m volumeMounter) GetAttributes() volume.Attributes {
	return volume.Attributes{ReadOnly: m.readOnly}
}

func kubeletWalk(root string, in tree) error {
	var policy *corev1.PodFSGroupChangePolicy
	if in.Policy != "" {
		policy = new(corev1.PodFSGroupChangePolicy(in.Policy))
	}
	return volume.NewVolumeOwnership(volumeMounter{readOnly: in.ReadOnly}, root, &in.GID, policy, nil).ChangePermissions()
}

func ourWalk(root string, in tree) error {
	return fsgroup.Apply(context.Background(), root, in.GID, fsgroup.Options{ReadOnly: in.ReadOnly, Policy: fsgroup.Policy(in.Policy)})
}

// groupWalkers are the walks of both sides.
var groupWalkers = []struct {
	name string
	walk func(root string, in tree) error
}{{"kubelet", kubeletWalk}, {"ours", ourWalk}}

// groupFiles returns the number of files for measurements: 5,000, or NODEAGENT_FSGROUP_FILES.
func groupFiles(tb testing.TB) int {
	tb.Helper()
	if text := os.Getenv("NODEAGENT_FSGROUP_FILES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			tb.Fatal(err)
		}
		return n
	}
	return 5_000
}

// walkAgain measures walks of a volume: a first one, which changes each file, or a second one, which changes none.
func walkAgain(b *testing.B, files int, first bool, walk func(string, tree) error) {
	if os.Geteuid() != 0 {
		b.Skip("changing file owners needs root")
	}
	root := tmpfsDir(b)
	var paths []string
	for i := range files {
		dir := filepath.Join(root, strconv.Itoa(i/100))
		if i%100 == 0 {
			must(os.Mkdir(dir, 0o755))
		}
		paths = append(paths, filepath.Join(dir, strconv.Itoa(i)))
		must(os.WriteFile(paths[i], nil, 0o644))
	}
	in := tree{GID: 1000}
	must(walk(root, in))
	for b.Loop() {
		if first {
			b.StopTimer()
			for _, path := range paths {
				must(os.Chmod(path, 0o644))
				must(os.Chown(path, -1, 0))
			}
			b.StartTimer()
		}
		if err := walk(root, in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFSGroup(b *testing.B) {
	files := groupFiles(b)
	for _, first := range []bool{true, false} {
		for _, side := range groupWalkers {
			b.Run(fmt.Sprintf("files=%d/first=%v/%s", files, first, side.name), func(b *testing.B) {
				walkAgain(b, files, first, side.walk)
			})
		}
	}
}

// The first walk, which changes each file, takes at most 0.6 of the kubelet's time, and a second one at most 0.3.
func TestFSGroupSpeed(t *testing.T) {
	if !*speed {
		t.Skip("without -speed")
	}
	files := groupFiles(t)
	for first, limit := range map[bool]float64{true: 0.6, false: 0.3} {
		ratio := bestRatio(5, func(side int) testing.BenchmarkResult {
			return testing.Benchmark(func(b *testing.B) { walkAgain(b, files, first, groupWalkers[side].walk) })
		})
		fmt.Printf("fsGroup, %d files, first walk %-5v: %.2f of the kubelet's time\n", files, first, ratio)
		if ratio > limit {
			t.Errorf("first walk %v: %.2f of the kubelet's time, want at most %v", first, ratio, limit)
		}
	}
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/conformance"
)

func TestNames(t *testing.T)         { run(t, names) }
func FuzzNames(f *testing.F)         { fuzz(f, names) }
func TestParseCgroupfs(t *testing.T) { run(t, parseCgroupfs) }
func FuzzParseCgroupfs(f *testing.F) { fuzz(f, parseCgroupfs) }
func TestParseSystemd(t *testing.T)  { run(t, parseSystemd) }
func FuzzParseSystemd(f *testing.F)  { fuzz(f, parseSystemd) }
func TestPodNames(t *testing.T)      { run(t, podNames) }
func FuzzPodNames(f *testing.F)      { fuzz(f, podNames) }
func TestIsPodCgroup(t *testing.T)   { run(t, isPod) }
func FuzzIsPodCgroup(f *testing.F)   { fuzz(f, isPod) }
func TestHugepageSizes(t *testing.T) { run(t, hugepageSizes) }
func FuzzHugepageSizes(f *testing.F) { fuzz(f, hugepageSizes) }

// component returns a path component, rarely an invalid one.
func component(c *conformance.Choices) string {
	if c.OneIn(24) {
		return conformance.Pick(c, "a_b", "a/b", "", ".", "..", "a b", "a@b", "ä", "a\x00b", "a\nb", "_", "-", "--", "a-", "-a")
	}
	return conformance.Pick(c, "kubepods", "burstable", "besteffort", "pod1234-ab", "pod12345678-abcd-4ef0-9876-0123456789ab", "a",
		"system", "podthis-has-pod", "pod", "container.scope", "podX", "x.slice", "a.b", "cri:1")
}

// components returns the components of a path, often of a pod's cgroup.
func components(c *conformance.Choices) []string {
	if c.OneIn(2) {
		return []string{"kubepods", conformance.Pick(c, "burstable", "besteffort"), component(c)}[:c.Int(4)]
	}
	parts := make([]string, c.Int(5))
	for i := range parts {
		parts[i] = component(c)
	}
	return parts
}

// answer is a text, or an error.
type answer struct {
	Text    string
	Refused bool
}

// textOrError returns text, or an error.
func textOrError[T ~string](text T, err error) answer {
	if err != nil {
		return answer{Refused: true}
	}
	return answer{Text: string(text)}
}

type nameForms struct{ Cgroupfs, Systemd, Slice answer }

var names = conformance.Comparison[[]string, nameForms]{
	Make: components,
	Kubelet: func(parts []string) (f nameForms) {
		refused := answer{Refused: true}
		f = nameForms{refused, refused, refused}
		defer func() { _ = recover() }() // NewCgroupName panics for an invalid component
		name := cm.NewCgroupName(cm.RootCgroupName, parts...)
		f.Cgroupfs = answer{Text: name.ToCgroupfs()}
		f.Systemd = answer{Text: name.ToSystemd()}
		f.Slice = answer{Text: path.Base(f.Systemd.Text)}
		if f.Slice.Text == "/" {
			f.Slice.Text = "-.slice" // as libctCgroupConfig names the root
		}
		return f
	},
	Ours: func(parts []string) nameForms {
		refused := answer{Refused: true}
		p, err := cgroups.NewPath(parts...)
		if err != nil {
			return nameForms{refused, refused, refused}
		}
		return nameForms{answer{Text: p.Cgroupfs()}, textOrError(p.Systemd()), textOrError(p.Slice())}
	},
	Exceptions: []conformance.Exception[[]string, nameForms]{{
		Name:   "no directory",
		Reason: "a component that is no directory name is invalid; the kubelet's path leads to another cgroup, or to a file that the kernel rejects",
		When: func(parts []string) bool {
			return slices.ContainsFunc(parts, func(s string) bool {
				return s == "" || s == "." || s == ".." || strings.ContainsAny(s, "\x00\n")
			})
		},
	}, {
		Name:   "underscore",
		Reason: "an underscore is invalid for systemd only; the kubelet also refuses it for cgroupfs, which has no use of it",
		When:   func(parts []string) bool { return strings.Contains(strings.Join(parts, ""), "_") },
	}, {
		Name:   "no unit",
		Reason: "characters that systemd does not allow in a unit name are invalid; the kubelet passes them on",
		When:   func(parts []string) bool { return strings.ContainsFunc(strings.Join(parts, ""), notInUnit) },
	}},
}

// notInUnit reports whether systemd.unit(5) does not allow the character in the name of a slice.
func notInUnit(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\", r)
}

// literal returns the name of a cgroup as in a runtime or a directory listing.
func literal(c *conformance.Choices, driver string) string {
	name := strings.Join(components(c), "/")
	if driver == "systemd" && !c.OneIn(8) {
		if p := cgroups.Path(name); p.Validate() == nil {
			if s, err := p.Systemd(); err == nil {
				name = s
			}
		}
		if c.OneIn(4) {
			name = path.Base(name)
		}
	}
	if c.OneIn(2) {
		name = "/" + strings.TrimPrefix(name, "/")
	}
	return name + conformance.Pick(c, "", "", "", "", "", "", "", "/", ".slice", "/x.scope", "//")
}

// componentsOf returns the components of p, or "refused".
func componentsOf(p cgroups.Path, err error) []string {
	if err != nil {
		return []string{"refused"}
	}
	return p.Components()
}

// refusedParts returns the result of parsed for an error.
func refusedParts(string, []string) []string { return []string{"refused"} }

var parseCgroupfs = conformance.Comparison[string, []string]{
	Make:    func(c *conformance.Choices) string { return literal(c, "cgroupfs") },
	Kubelet: func(name string) []string { return cm.ParseCgroupfsToCgroupName(name) },
	Ours:    func(name string) []string { return componentsOf(cgroups.ParseCgroupfs(name)) },
	Same:    slices.Equal[[]string],
	Exceptions: []conformance.Exception[string, []string]{{
		Name:   "no path",
		Reason: "a name with an empty component, a dot or a control character is invalid; the kubelet accepts it but cannot write it again",
		When: func(name string) bool {
			_, err := cgroups.NewPath(strings.Split(strings.TrimPrefix(name, "/"), "/")...)
			return err != nil
		},
		Want: refusedParts,
	}},
}

var parseSystemd = conformance.Comparison[string, []string]{
	Make:    func(c *conformance.Choices) string { return literal(c, "systemd") },
	Kubelet: func(name string) []string { return cm.ParseSystemdToCgroupName(name) },
	Ours:    func(name string) []string { return componentsOf(cgroups.ParseSystemd(name)) },
	Same:    slices.Equal[[]string],
	Exceptions: []conformance.Exception[string, []string]{{
		Name:   "root",
		Reason: "the root has no component; the kubelet returns one or two components",
		When:   func(name string) bool { return name == "" || name == "/" || name == "-.slice" || name == "/-.slice" },
		Want:   func(string, []string) []string { return nil },
	}, {
		Name:   "no slice",
		Reason: "a slice that systemd would not place there is invalid; the kubelet accepts any last component",
		When: func(name string) bool {
			unit := path.Base(name)
			p := cm.ParseSystemdToCgroupName(name)
			if !strings.HasSuffix(unit, ".slice") || strings.ContainsFunc(unit, notInUnit) || slices.Contains(p, "") {
				return true
			}
			dirs, err := cgroups.Path(strings.Join(p, "/")).Systemd()
			return err != nil || strings.Contains(strings.TrimPrefix(name, "/"), "/") && "/"+strings.TrimPrefix(name, "/") != dirs
		},
		Want: refusedParts,
	}},
}

// layout is the root cgroup of pods and the cgroup driver.
type layout struct{ Root, Driver string }

// manager returns the kubelet's manager of pod cgroups for this layout.
func (l layout) manager() cm.PodContainerManager {
	config := cm.NodeConfig{CgroupsPerQOS: true, CgroupRoot: l.Root}
	names := cm.NewCgroupV1Manager(klog.Background(), &cm.CgroupSubsystems{}, l.Driver)
	return cm.NewConformanceNode(context.Background(), config, nil, 0, names, nil).Pods()
}

// makeLayout returns a random layout.
func makeLayout(c *conformance.Choices) layout {
	return layout{conformance.Pick(c, "/", "/node", "/a/b-c"), conformance.Pick(c, "cgroupfs", "systemd")}
}

type podName struct {
	Layout layout
	Pod    *corev1.Pod
}

var podNames = conformance.Comparison[podName, string]{
	Make: func(c *conformance.Choices) podName { return podName{makeLayout(c), conformance.Pod(c)} },
	Kubelet: func(in podName) string {
		_, literal := in.Layout.manager().GetPodContainerName(in.Pod)
		return literal
	},
	Ours: func(in podName) string {
		root, err := cgroups.ParseCgroupfs(in.Layout.Root)
		if err != nil {
			return err.Error()
		}
		p := cgroups.PodPath(root, classOf(in.Pod), string(in.Pod.UID))
		if in.Layout.Driver == "systemd" {
			return textOrError(p.Systemd()).Text
		}
		return p.Cgroupfs()
	},
}

type podCgroup struct {
	Layout layout
	Name   string
}

// parts returns the components of the name in the kubelet.
func (in podCgroup) parts() []string {
	if in.Layout.Driver == "systemd" {
		return cm.ParseSystemdToCgroupName(in.Name)
	}
	return cm.ParseCgroupfsToCgroupName(in.Name)
}

var isPod = conformance.Comparison[podCgroup, answer]{
	Make: func(c *conformance.Choices) podCgroup {
		l := makeLayout(c)
		return podCgroup{l, path.Join(conformance.Pick(c, l.Root, l.Root, l.Root, "/other"), literal(c, "cgroupfs"))}
	},
	Kubelet: func(in podCgroup) answer {
		name := in.Name
		if ok, uid := in.Layout.manager().IsPodCgroup(name); ok {
			return answer{Text: string(uid)}
		}
		return answer{Refused: true}
	},
	Ours: func(in podCgroup) answer {
		parse := cgroups.ParseCgroupfs
		if in.Layout.Driver == "systemd" {
			parse = cgroups.ParseSystemd
		}
		root, _ := cgroups.ParseCgroupfs(in.Layout.Root)
		p, err := parse(in.Name)
		uid, ok := cgroups.PodUID(root, p)
		if err != nil || !ok {
			return answer{Refused: true}
		}
		return answer{Text: uid}
	},
	Exceptions: []conformance.Exception[podCgroup, answer]{{
		Name:   "elsewhere",
		Reason: "only cgroups directly below the cgroups of QoS classes are pods; the kubelet compares their depth, not their parents",
		When: func(in podCgroup) bool {
			parts := in.parts()
			parent := strings.Join(parts[:max(len(parts)-1, 0)], "/")
			root := strings.TrimPrefix(in.Layout.Root+"/kubepods", "/")
			root = strings.TrimPrefix(root, "/")
			return parent != root && parent != root+"/burstable" && parent != root+"/besteffort"
		},
		Want: func(podCgroup, answer) answer { return answer{Refused: true} },
	}, {
		Name:   "no UID",
		Reason: `"pod" without a UID is no pod; the kubelet returns an empty UID`,
		When:   func(in podCgroup) bool { return strings.HasSuffix(fmt.Sprint(in.parts()), "pod]") },
		Want:   func(podCgroup, answer) answer { return answer{Refused: true} },
	}},
}

var hugepageSizes = conformance.Comparison[uint64, string]{
	Make: func(c *conformance.Choices) uint64 { return c.Uint64() >> 1 << c.Int(60) >> 1 },
	Kubelet: func(bytes uint64) string {
		r := cm.ConformanceResources(context.Background(), &cm.ResourceConfig{HugePageLimit: map[int64]int64{int64(bytes): 1}})
		for _, l := range r.HugetlbLimit {
			if l.Limit == 1 {
				return l.Pagesize
			}
		}
		return ""
	},
	Ours: cgroups.HugepageSize,
	Exceptions: []conformance.Exception[uint64, string]{{
		Name:   "zero",
		Reason: "a page size of zero has no name; the kubelet names it 0PB",
		When:   func(bytes uint64) bool { return bytes == 0 },
		Want:   func(uint64, string) string { return "" },
	}},
}

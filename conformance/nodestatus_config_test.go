// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/cadvisor/lib/fs"
	cadvisormachine "github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	utilflag "k8s.io/kubernetes/pkg/util/flag"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

func TestNodeLabels(t *testing.T) { run(t, nodeLabels) }
func TestNodeTaints(t *testing.T) { run(t, nodeTaints) }
func TestNodeIPs(t *testing.T)    { run(t, nodeIPs) }
func TestNodeName(t *testing.T)   { run(t, nodeNames) }

func FuzzNodeLabels(f *testing.F) { fuzz(f, nodeLabels) }
func FuzzNodeTaints(f *testing.F) { fuzz(f, nodeTaints) }

// flagValue is the parsed value of a flag; OK is false if the text is invalid.
type flagValue[T any] struct {
	Value T
	OK    bool
}

// domains are prefixes of the keys of labels and taints.
var domains = []string{
	"", "example.com/", "kubernetes.io/", "k8s.io/", "x.kubernetes.io/", "x.k8s.io/", "node.kubernetes.io/", "a.node.kubernetes.io/",
	"kubelet.kubernetes.io/", "a.kubelet.kubernetes.io/", "xnode.kubernetes.io/", "xkubernetes.io/", "node-role.kubernetes.io/",
	"topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/", "beta.kubernetes.io/", "/", "a/b/", "UPPER/", "kubernetes.io./",
}

func makeKey(c *conformance.Choices) string {
	return conformance.Pick(c, domains...) + conformance.Pick(c, "x", "hostname", "zone", "region", "instance-type", "os", "arch", "", "-", "a b", strings.Repeat("x", 64))
}

func makeValue(c *conformance.Choices) string {
	return conformance.Pick(c, "", "v", "a.b_c", "-", "a b", "ä", strings.Repeat("v", 64))
}

var nodeLabels = conformance.Comparison[string, flagValue[map[string]string]]{
	Make: func(c *conformance.Choices) string {
		var pairs []string
		for range c.Int(4) {
			pairs = append(pairs, conformance.Pick(c, "", " ")+makeKey(c)+conformance.Pick(c, "=", "", " = ", "==")+makeValue(c))
		}
		return strings.Join(pairs, ",")
	},
	Kubelet: func(in string) (out flagValue[map[string]string]) {
		out.Value = map[string]string{}
		labels := cliflag.ConfigurationMap(out.Value)
		if err := labels.Set(in); err != nil {
			return out
		}
		out.OK = options.ValidateKubeletFlags(&options.KubeletFlags{NodeLabels: labels}) == nil
		return out
	},
	Ours: func(in string) (out flagValue[map[string]string]) {
		out.Value = nodestatus.ParseLabels(in)
		config := nodestatus.Config{Name: "n1", Labels: out.Value}
		out.OK = config.Validate() == nil
		return out
	},
}

var nodeTaints = conformance.Comparison[string, flagValue[[]corev1.Taint]]{
	Make: func(c *conformance.Choices) string {
		var taints []string
		for range c.Int(4) {
			taint := makeKey(c) + conformance.Pick(c, "", "=", "==") + makeValue(c) +
				conformance.Pick(c, ":", "", "::") + conformance.Pick(c, "NoSchedule", "PreferNoSchedule", "NoExecute", "", "Never", "noschedule")
			taints = append(taints, taint+conformance.Pick(c, "", "", "", "-"))
		}
		return strings.Join(taints, ",")
	},
	Kubelet: func(in string) (out flagValue[[]corev1.Taint]) {
		out.OK = utilflag.RegisterWithTaintsVar{Value: &out.Value}.Set(in) == nil
		return out
	},
	Ours: func(in string) (out flagValue[[]corev1.Taint]) {
		taints, err := nodestatus.ParseTaints(in)
		if out.OK = err == nil; out.OK {
			out.Value = taints
		}
		return out
	},
	Exceptions: []conformance.Exception[string, flagValue[[]corev1.Taint]]{{
		Name:   "taint to remove",
		Reason: "a taint with a trailing minus, which kubectl removes, is an error; the kubelet ignores it",
		When: func(in string) bool {
			return slices.ContainsFunc(strings.Split(in, ","), func(s string) bool { return strings.HasSuffix(s, "-") })
		},
		Want: func(string, flagValue[[]corev1.Taint]) flagValue[[]corev1.Taint] { return flagValue[[]corev1.Taint]{} },
	}},
}

var nodeIPs = conformance.Comparison[string, flagValue[[]netip.Addr]]{
	Make: func(c *conformance.Choices) string {
		var ips []string
		for range c.Int(4) {
			ips = append(ips, conformance.Pick(c, "", " ")+conformance.Pick(c, "10.0.0.1", "192.0.2.1", "fd00::1", "2001:db8::1", "0.0.0.0", "::",
				"127.0.0.1", "::1", "fe80::1", "224.0.0.1", "::ffff:10.0.0.1", "", "x", "10.0.0", "fe80::1%lo"))
		}
		return strings.Join(ips, ",")
	},
	Kubelet: func(in string) (out flagValue[[]netip.Addr]) {
		ips, _, err := nodeutil.ParseNodeIPArgument(in, "")
		if out.OK = err == nil; out.OK {
			for _, ip := range ips {
				out.Value = append(out.Value, addrOf(ip))
			}
		}
		return out
	},
	Ours: func(in string) (out flagValue[[]netip.Addr]) {
		ips, err := nodestatus.ParseNodeIPs(in)
		if out.OK = err == nil; out.OK {
			out.Value = ips
		}
		return out
	},
	Exceptions: []conformance.Exception[string, flagValue[[]netip.Addr]]{{
		Name:   "no IP address",
		Reason: "an invalid IP address is an error; the kubelet ignores it",
		When: func(in string) bool {
			return in != "" && slices.ContainsFunc(strings.Split(in, ","), func(s string) bool {
				_, err := netip.ParseAddr(strings.TrimSpace(s))
				return err != nil || strings.Contains(s, "%")
			})
		},
		Want: func(string, flagValue[[]netip.Addr]) flagValue[[]netip.Addr] { return flagValue[[]netip.Addr]{} },
	}, {
		Name:   "address of no node",
		Reason: "an address that a node cannot have is an error; the kubelet starts and fails to set addresses",
		When: func(in string) bool {
			return slices.ContainsFunc([]string{"127.", "::1", "fe80", "224."}, func(s string) bool { return strings.Contains(in, s) })
		},
		Want: func(string, flagValue[[]netip.Addr]) flagValue[[]netip.Addr] { return flagValue[[]netip.Addr]{} },
	}},
}

func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

var nodeNames = conformance.Comparison[string, flagValue[string]]{
	Make: func(c *conformance.Choices) string {
		// Never empty: the kubelet then returns the name of this machine.
		return conformance.Pick(c, " ", "\n", "a", "\t") + conformance.Pick(c, "", "Foo", "a.B", "ÄÖ", "İ") + conformance.Pick(c, "", " ", "\n", "\u00a0")
	},
	Kubelet: func(in string) (out flagValue[string]) {
		name, err := nodeutil.GetHostname(in)
		return flagValue[string]{name, err == nil}
	},
	Ours: func(in string) (out flagValue[string]) {
		name, err := nodestatus.NodeName(in)
		return flagValue[string]{name, err == nil}
	},
}

// TestMachine compares the machine information that both sides read from files.
func TestMachine(t *testing.T) {
	t.Run("this host", func(t *testing.T) {
		theirs, err := cadvisormachine.Info(sysfs.NewRealSysFs(), noFilesystems{}, true)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := machine.Read(os.DirFS("/"))
		if err != nil {
			t.Fatal(err)
		}
		want := machine.Info{
			MachineID: theirs.MachineID, SystemUUID: theirs.SystemUUID, BootID: theirs.BootID,
			KernelVersion: cadvisormachine.KernelVersion(), OSImage: cadvisormachine.ContainerOsVersion(),
			CPUs: theirs.NumCores, Cores: theirs.NumPhysicalCores, Sockets: theirs.NumSockets, Books: theirs.NumBooks, Drawers: theirs.NumDrawers,
			Memory: int64(theirs.MemoryCapacity), Swap: int64(theirs.SwapCapacity), UserNS: ours.UserNS,
		}
		for _, pages := range theirs.HugePages {
			if want.HugePages == nil {
				want.HugePages = map[int64]int64{}
			}
			size := int64(pages.PageSize) << 10
			want.HugePages[size] = size * int64(pages.NumPages)
		}
		if diff := cmp.Diff(want, ours); diff != "" {
			t.Errorf("cAdvisor (-) and nodeagent (+) differ\n%s", diff)
		}
	})
}

// noFilesystems returns no file systems.
type noFilesystems struct{ fs.FsInfo }

func (noFilesystems) GetGlobalFsInfo() ([]fs.Fs, error) { return nil, nil }

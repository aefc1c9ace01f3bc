// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/agent/kubeletflags"
	"github.com/seed81659283/nodeagent/conformance"
)

// flagsInput is a command line, and the file of its flag --config. An empty file means no --config.
type flagsInput struct {
	Args []string
	File string
}

// has reports whether the command line has a flag.
func (in flagsInput) has(name string) bool {
	return slices.ContainsFunc(in.Args, func(arg string) bool {
		given, _, _ := strings.Cut(strings.ReplaceAll(arg, "_", "-"), "=")
		return given == "--"+name
	})
}

// hasValue reports whether the command line has a flag with this value.
func (in flagsInput) hasValue(value string) bool {
	return slices.ContainsFunc(in.Args, func(arg string) bool {
		_, given, found := strings.Cut(arg, "=")
		return found && given == value || arg == value
	})
}

// makeFlagsInput creates a command line of valid and invalid flags.
func makeFlagsInput(c *conformance.Choices) (in flagsInput) {
	flags := kubeletflagsInOrder
	in.Args = []string{}
	f := flags[c.Int(len(flags))]
	for range 1 + c.Int(6) {
		if !c.OneIn(4) {
			f = flags[c.Int(len(flags))]
		}
		name, value := f.Name, makeFlagValue(c, f)
		if c.OneIn(8) {
			name = strings.ReplaceAll(name, "-", "_")
		}
		switch {
		case f.Type == "bool" && c.OneIn(3):
			in.Args = append(in.Args, "--"+name)
		case f.Type != "bool" && c.OneIn(4):
			in.Args = append(in.Args, "--"+name, value)
		default:
			in.Args = append(in.Args, "--"+name+"="+value)
		}
	}
	if c.OneIn(2) {
		in.File = makeFlagsFile(c)
	}
	return in
}

// kubeletflagsInOrder has the flags that makeFlagsInput uses. Those of files, help and version are tested elsewhere; housekeeping-interval sets a
// variable of the process in the kubelet.
var kubeletflagsInOrder = slices.DeleteFunc(kubeletflags.Flags(), func(f kubeletflags.Flag) bool {
	return slices.Contains([]string{"config", "config-dir", "help", "version", "image-credential-provider-config", "housekeeping-interval"}, f.Name)
})

// flagValues has values by flag type: first valid ones, then, after a nil element, others.
var flagValues = map[string][2][]string{
	"bool": {{"true", "false", "1", "F"}, {"yes"}}, "int32": {{"1", "10", "0x10", "100", "60"}, {"0", "-1", "5000", "x", "2147483648"}}, "int64": {{"1", "5"}, {"-1", "x"}},
	"duration": {{"10s", "1h30m", "90s"}, {"0s", "0", "-1s", "5"}}, "Level": {{"2", "0", "4", "10"}, {"-1"}}, "ip": {{"0.0.0.0", "::", "10.0.0.1", ""}, {"010.0.0.1", "host"}},
	"stringSlice": {{"10.0.0.1", "a,b", ""}, {`"a,b",c`, `"`}}, "mapStringString": {{"memory=1Gi", "cpu=1,memory=2Gi", "", " cpu = 1 ,"}, {"a"}},
	"mapStringBool": {{"AllAlpha=false", "APIResponseCompression=true", "APIResponseCompression=false,AllAlpha=false", ""}, {"Nope=true", "A", "GracefulNodeShutdown=false"}},
	"quantity":      {{"0"}, {"1Ki", "x"}}, "colonSeparatedMultimapStringString": {{"", "a:b"}, {"a:b,a:c", "a"}},
	"reserved-memory": {{"0:memory=1Gi"}, {"0:memory=1Gi;1:hugepages-2Mi=4Mi", "0", "0:cpu=1"}}, "pattern=N,...": {{"a=1", ""}, {"a"}},
	"[]v1.Taint": {{"a=b:NoSchedule", "a:NoExecute,b=c:NoSchedule", ""}, {"a", "a=b:Never", "a=b:NoSchedule,a=c:NoSchedule", "a:NoSchedule-"}},
	"string":     {{"/a/b", "", "/c"}, {"x"}},

	"authorization-mode": {{"Webhook", "AlwaysAllow"}, {"", "RBAC"}}, "eviction-hard": {{"memory.available<1Gi", "nodefs.available<5%,pid.available<10%", ""}, {"a"}},
	"eviction-soft": {{"", "memory.available<2Gi"}, {"a"}}, "eviction-soft-grace-period": {{"", "memory.available=1m"}, {"a"}}, "eviction-minimum-reclaim": {{"memory.available=0Mi", ""}, {"a"}},
	"topology-manager-policy": {{"none", "best-effort"}, {"never"}}, "topology-manager-scope": {{"pod", "container"}, {"x"}}, "container-log-max-size": {{"5Mi", "10Mi"}, {"5Mi"}},
	"container-log-max-files": {{"2", "5"}, {"1"}}, "port": {{"10250", "1"}, {"0", "-1", "99999"}}, "oom-score-adj": {{"-999", "0"}, {"5000"}}, "max-pods": {{"7", "110"}, {"0", "-1"}},
	"container-runtime-endpoint": {{"unix:///a", "unix:///b"}, {""}}, "node-ip": {{"10.0.0.1", "10.0.0.1,fd00::1", "", "::"}, {"10.0.0.1,10.0.0.2", "x"}}, "cert-dir": {{"/var/lib/kubelet/pki"}, {"/x"}},
	"node-labels": {{"a=b", "a=c,d", "", "node.kubernetes.io/x=y"}, {"kubernetes.io/x=y", "a=b=c", "-a=b"}}, "hostname-override": {{"Node", "", " n "}, {" "}},
	"cluster-dns": {{"10.0.0.1", "10.0.0.1,10.0.0.2", ""}, {`"`}}, "hairpin-mode": {{"none", "hairpin-veth"}, {"x"}}, "cluster-domain": {{"cluster.local", ""}, {"a"}},
	"allowed-unsafe-sysctls": {{"net.core.somaxconn", "kernel.msg*,net.ipv4.ip_forward", ""}, {`"`}}, "provider-id": {{"kind://a", ""}, {"x"}}, "root-dir": {{"/var/lib/kubelet", "/a"}, {"/a"}},
	"image-gc-high-threshold": {{"90", "100"}, {"10", "101"}}, "image-gc-low-threshold": {{"70", "10"}, {"99"}}, "tls-cert-file": {{"", "/a"}, {"/a"}}, "tls-private-key-file": {{"", "/a"}, {"/a"}},
	"cgroup-root": {{"/a", ""}, {"/b"}}, "kube-api-qps": {{"5", "0"}, {"-1"}}, "pod-manifest-path": {{"/a", ""}, {"/b"}}, "cgroup-driver": {{"systemd", "cgroupfs"}, {"systemd"}},
}

// makeFlagValue returns a value for a flag, which is usually valid. Most values of flags that support only the default are the default.
func makeFlagValue(c *conformance.Choices, f kubeletflags.Flag) string {
	if f.State == kubeletconfig.DefaultOnly && !c.OneIn(8) || c.OneIn(16) {
		return strings.Trim(f.Default, "[]")
	}
	values, ok := flagValues[f.Name]
	if !ok {
		values = flagValues[f.Type]
	}
	if c.OneIn(12) {
		return conformance.Pick(c, values[1]...)
	}
	return conformance.Pick(c, values[0]...)
}

// makeFlagsFile returns a valid KubeletConfiguration with fields for which there are flags.
func makeFlagsFile(c *conformance.Choices) string {
	file := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for _, line := range []string{
		"maxPods: 5", "clusterDNS: [10.0.0.9]", "evictionHard: {memory.available: 5%}", "featureGates: {APIResponseCompression: true, GracefulNodeShutdown: true}",
		"registerNode: false", "readOnlyPort: 10255", "port: 11250", "systemReserved: {cpu: 10m}", "syncFrequency: 5s", "nodeStatusUpdateFrequency: 20s",
		"authentication: {anonymous: {enabled: false}, x509: {clientCAFile: /ca}}", "cgroupDriver: systemd", "logging: {verbosity: 3}",
		"registerWithTaints: [{key: k, effect: NoSchedule}]", "streamingConnectionIdleTimeout: 1h", "imageGCHighThresholdPercent: 90", "cgroupRoot: /a",
	} {
		if c.OneIn(3) {
			file += line + "\n"
		}
	}
	return file
}

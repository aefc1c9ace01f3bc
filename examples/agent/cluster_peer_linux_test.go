// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// startPeer starts a kubelet as node n2 of the same cluster. It has a containerd of its own, because it treats every pod of
// its runtime as its own. fields are added to its configuration. startPeer returns its root directory.
func (m *member) startPeer(address string, fields map[string]any) (root string) {
	m.t.Helper()
	kubeconfig, err := m.Kubeconfig("system:node:n2", "system:nodes")
	require.NoError(m.t, err)
	return startKubelet(m.t, fields, "--kubeconfig="+kubeconfig, "--node-ip="+address, "--node-labels="+peerLabel+"="+peerValue)
}

// startKubelet starts a kubelet named n2 on a containerd of its own, and returns its root directory.
func startKubelet(t *testing.T, fields map[string]any, flags ...string) (root string) {
	t.Helper()
	return startKubeletOn(t, lab.StartPrivate(t), fields, flags...)
}

// startKubeletOn starts a kubelet named n2 on the containerd of l, and returns its root directory.
func startKubeletOn(t *testing.T, l *lab.Lab, fields map[string]any, flags ...string) (root string) {
	t.Helper()
	binary := filepath.Join(controlplane.RequirePrograms(t, "kubelet"), "kubelet")
	dir, port := t.TempDir(), exetest.FreePort(t)
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "containerRuntimeEndpoint": l.Endpoint(),
		"podLogsDir": filepath.Join(dir, "logs"), "volumePluginDir": filepath.Join(dir, "plugins"),
		"address": "127.0.0.1", "port": port, "healthzPort": 0,
		// Features that need a machine of their own are off.
		"cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{}, "failCgroupV1": false, "failSwapOn": false,
		"makeIPTablesUtilChains": false, "imageGCHighThresholdPercent": 100,
	}
	maps.Copy(config, fields)
	text, err := json.Marshal(config)
	require.NoError(t, err)
	file := filepath.Join(dir, "kubelet.json")
	root = filepath.Join(dir, "root")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	log, err := os.Create(filepath.Join(dir, "kubelet.log"))
	require.NoError(t, err)
	cmd := exec.Command(binary, append(flags, "--config="+file, "--root-dir="+root, "--cert-dir="+filepath.Join(dir, "pki"), "--hostname-override=n2")...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the end of the kubelet's log:\n%s", text[max(0, len(text)-8000):])
		}
		unmountBelow(t, root) // volumes of its pods, and the root directory, which the kubelet bind-mounts on itself
	})
	return root
}

// unmountBelow unmounts all mount points at or below a directory.
func unmountBelow(t *testing.T, dir string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if fields := strings.Fields(line); len(fields) > 4 && (fields[4] == dir || strings.HasPrefix(fields[4], dir+"/")) {
			require.NoError(t, syscall.Unmount(fields[4], syscall.MNT_DETACH), fields[4])
		}
	}
}

// Both nodes are registered with this label.
const peerLabel, peerValue = "example.com/rack", "r7"

// podOnNodeYAML is a pod that is bound to a node.
const podOnNodeYAML = `
apiVersion: v1
kind: Pod
metadata: {name: pod-of-%[1]s}
spec:
  nodeName: %[1]s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]
    resources: {requests: {cpu: 10m, memory: 8Mi}, limits: {memory: 16Mi}}
`

// The Node objects of the agent and of kubelet 1.37.1, on the same machine with the same configuration, differ only as
// testdata/node.txt lists. The output of kubectl describe differs only as testdata/describe.txt lists. A listed difference
// that no longer exists is an error, too.
func TestClusterNodeBesideKubelet(t *testing.T) {
	fields := map[string]any{
		"maxPods": 50, "podsPerCore": 0, "providerID": "example://machine",
		"systemReserved": map[string]string{"cpu": "100m", "memory": "64Mi"}, "kubeReserved": map[string]string{"memory": "32Mi", "ephemeral-storage": "1Gi"},
		"evictionHard":       map[string]string{"memory.available": "100Mi", "nodefs.available": "1%"},
		"registerWithTaints": []map[string]string{{"key": "example.com/busy", "value": "yes", "effect": "PreferNoSchedule"}},
	}
	config := maps.Clone(fields)
	config["nodeLabels"] = map[string]string{peerLabel: peerValue}
	m := newMember(t, config)
	address := m.lab.Subnet().Addr().Next().String()
	m.apply(fmt.Sprintf(podOnNodeYAML, "n1"))
	m.eventually(timeout, "get", "pod", "pod-of-n1", "-o", "jsonpath={.status.phase}")("Running") // and the bridge has its address
	m.startPeer(address, fields)
	m.eventually(clusterTimeout, "get", "node", "n2", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)("True")
	m.apply(fmt.Sprintf(podOnNodeYAML, "n2"))
	m.eventually(clusterTimeout, "get", "pod", "pod-of-n2", "-o", "jsonpath={.status.phase}")("Running")
	for _, name := range []string{"n1", "n2"} { // the next status reports also have addresses and image sizes
		m.eventually(clusterTimeout, "get", "node", name, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address} {.status.images[0].sizeBytes}`)(
			address + " " + m.do("get", "node", "n2", "-o", "jsonpath={.status.images[0].sizeBytes}"))
	}

	m.awaitLeases(time.Now(), "n1", "n2")         // then later changes are compared, too
	exetest.Eventually(t, timeout, func() error { // events and leases may be late
		return errors.Join(checkDifferences("node.txt", m.compareNodeObjects()), checkDifferences("describe.txt", m.compareDescriptions()))
	})
	m.do("delete", "pod", "pod-of-n1", "pod-of-n2", "--timeout=60s")
}

// awaitLeases waits until nodes have renewed their leases after moment.
func (m *member) awaitLeases(moment time.Time, names ...string) {
	m.t.Helper()
	for _, name := range names {
		exetest.Eventually(m.t, timeout, func() error {
			text, err := m.try("", "get", "lease", name, "-n", "kube-node-lease", "-o", "jsonpath={.spec.renewTime}")
			if err != nil {
				return err
			}
			renewed, err := time.Parse(time.RFC3339, text)
			if err == nil && renewed.Before(moment) {
				err = fmt.Errorf("lease %s was renewed at %v", name, renewed)
			}
			return err
		})
	}
}

// compareNodeObjects returns the paths of the fields that differ between the two Node objects, with their values.
func (m *member) compareNodeObjects() map[string]string {
	m.t.Helper()
	var fields [2]map[string]string
	for i, name := range []string{"n1", "n2"} {
		var node map[string]any
		require.NoError(m.t, json.Unmarshal([]byte(m.do("get", "node", name, "-o", "json")), &node))
		fields[i] = map[string]string{}
		flatten("", node, fields[i])
	}
	differ := map[string]string{}
	for path := range union(fields[0], fields[1]) {
		if ours, theirs := fields[0][path], fields[1][path]; ours != theirs {
			differ[path] = fmt.Sprintf("agent: %q, kubelet: %q", ours, theirs)
		}
	}
	return differ
}

// compareDescriptions returns the lines that only one of the two descriptions has.
func (m *member) compareDescriptions() map[string]string {
	m.t.Helper()
	ours, theirs := normalizeDescription(m.do("describe", "node", "n1")), normalizeDescription(m.do("describe", "node", "n2"))
	differ := map[string]string{}
	for line := range union(ours, theirs) {
		if theirs[line] == "" {
			differ["agent: "+line] = "the kubelet has no such line"
		} else if ours[line] == "" {
			differ["kubelet: "+line] = "the agent has no such line"
		}
	}
	return differ
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// flatten adds the scalars of an object to into, by their paths. The path of a list element has its type, name or key
// instead of its index, if it has one.
func flatten(path string, value any, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			flatten(strings.TrimPrefix(path+"."+key, "."), field, into)
		}
	case []any:
		for i, element := range v {
			key := fmt.Sprint(i)
			switch o := element.(type) {
			case string:
				key = o
			case map[string]any:
				for _, field := range []string{"type", "name", "key"} {
					if name, ok := o[field].(string); ok {
						key = name
					}
				}
			}
			flatten(path+"["+key+"]", element, into)
		}
	default:
		into[path] = fmt.Sprint(value)
	}
}

// An unlisted difference is an error, and so is a listed difference that does not exist.
func TestCheckDifferencesReportsUnnamedAndVanished(t *testing.T) {
	differ := map[string]string{}
	require.ErrorContains(t, checkDifferences("describe.txt", differ), `lists a difference that does not exist: "agent: Kubelet Version`)
	differ["agent: Kubelet Version: v1.37.1+nodeagent"], differ["kubelet: Kubelet Version: v1.37.1"] = "x", "x"
	require.NoError(t, checkDifferences("describe.txt", differ))
	differ["more"] = "and this"
	require.EqualError(t, checkDifferences("describe.txt", differ), `describe.txt does not list "more": and this`)
	require.NoError(t, compareDifferences("f", "a: *.c # why\n?d* # why\n", map[string]string{"a: b.c": "x"}))
	require.EqualError(t, compareDifferences("f", "a: *.c # why\n", map[string]string{"a: bc": "x"}), "f does not list \"a: bc\": x\nf lists a difference that does not exist: \"a: *.c\"")
	require.NoError(t, compareDifferences("f", "a(( > b)) # why\n", map[string]string{"a > b": "x", "a": "y"}))
	require.Error(t, compareDifferences("f", "a(( > b)) # why\n", map[string]string{"a > ": "x", "a": "y"}))
	require.EqualError(t, compareDifferences("f", "a", map[string]string{"a": "x"}), `f: "a" has no reason`)
	into := map[string]string{}
	flatten("", map[string]any{"a": []any{"x", map[string]any{"type": "T", "b": true}, []any{1.5}}}, into)
	require.Equal(t, map[string]string{"a[x]": "x", "a[T].type": "T", "a[T].b": "true", "a[2][0]": "1.5"}, into)
}

// Parts of kubectl describe that differ between any two nodes and moments.
var (
	moment = regexp.MustCompile(`\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000`)
	age    = regexp.MustCompile(`\b(\d+[smh])+\b( \(x\d+ over \S+\))?`)
	blanks = regexp.MustCompile(`\s+`)
	names  = regexp.MustCompile(`\bn[12]\b`)
)

// normalizeDescription returns the lines of a description, with placeholders for names and times, and single blanks.
func normalizeDescription(text string) map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(text) {
		line = moment.ReplaceAllString(line, "TIME")
		line = age.ReplaceAllString(line, "AGE")
		line = names.ReplaceAllString(line, "NODE")
		if line = strings.TrimSpace(blanks.ReplaceAllString(line, " ")); strings.Trim(line, "- ") != "" {
			lines[line] = line
		}
	}
	return lines
}

// checkDifferences compares differ with the list in a file: one difference per line, and its reason after " # ". A line that
// begins with a question mark is optional. A * matches any text, and ((TEXT)) matches TEXT or nothing.
func checkDifferences(file string, differ map[string]string) error {
	text, err := os.ReadFile(filepath.Join("testdata", file))
	return errors.Join(err, compareDifferences(file, string(text), differ))
}

// compareDifferences compares differ with the differences that text lists. file is the name of the list in errors.
func compareDifferences(file, text string, differ map[string]string) error {
	var errs []error
	type named struct {
		pattern  *regexp.Regexp
		text     string
		required bool // not optional
		seen     bool
	}
	var list []*named
	for line := range strings.Lines(text) {
		difference, reason, _ := strings.Cut(strings.TrimSpace(line), " # ")
		if difference == "" || strings.HasPrefix(difference, "#") {
			continue
		}
		if reason == "" {
			errs = append(errs, fmt.Errorf("%s: %q has no reason", file, difference))
		}
		difference, may := strings.CutPrefix(difference, "?")
		pattern := strings.NewReplacer(`\*`, ".*", `\(\(`, "(?:", `\)\)`, ")?").Replace(regexp.QuoteMeta(difference))
		list = append(list, &named{regexp.MustCompile("^" + pattern + "$"), difference, !may, false})
	}
	for _, d := range slices.Sorted(maps.Keys(differ)) {
		found := false
		for _, n := range list {
			if n.pattern.MatchString(d) {
				found, n.seen = true, true
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("%s does not list %q: %s", file, d, differ[d]))
		}
	}
	for _, n := range list {
		if n.required && !n.seen {
			errs = append(errs, fmt.Errorf("%s lists a difference that does not exist: %q", file, n.text))
		}
	}
	return errors.Join(errs...)
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package changeover_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/internal/changeover"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// runtimeList is a container runtime that can only be listed: any other call would not compile.
type runtimeList struct {
	pods []cri.Pod
	err  error
}

func (r *runtimeList) List(context.Context) (s cri.Snapshot, err error) {
	for i := range r.pods {
		s.Sandboxes, s.Containers = append(s.Sandboxes, r.pods[i].Sandboxes...), append(s.Containers, r.pods[i].Containers...)
	}
	return s, r.err
}

func (*runtimeList) Version(context.Context) (cri.Version, error) { return cri.Version{}, nil }

func (*runtimeList) Status(context.Context) (cri.Status, error)             { return cri.Status{}, nil }
func (*runtimeList) CgroupDriver(context.Context) (cri.CgroupDriver, error) { return 0, nil }

// kubeletNode is a node with the files that a kubelet has left in a directory.
type kubeletNode struct {
	*testing.T
	root    string
	config  string // of the file config.yaml
	runtime runtimeList
	options changeover.Options
	pods    []*corev1.Pod // of the API server
}

func newKubeletNode(t *testing.T) *kubeletNode {
	n := &kubeletNode{T: t, root: t.TempDir()}
	n.config = "staticPodPath: " + n.path("manifests") + "\ncontainerRuntimeEndpoint: unix:///run/test.sock\n"
	n.options = changeover.Options{
		Runtime: &n.runtime, Proc: n.path("proc"),
		APIPods:   func(context.Context) ([]*corev1.Pod, error) { return n.pods, nil },
		HasCgroup: func(context.Context, *corev1.Pod) (bool, error) { return true, nil },
	}
	n.write("proc/swaps", "Filename Type\n")
	return n
}

func (n *kubeletNode) path(name string) string { return filepath.Join(n.root, name) }

func (n *kubeletNode) write(name, text string) {
	n.Helper()
	require.NoError(n, os.MkdirAll(filepath.Dir(n.path(name)), 0o700))
	require.NoError(n, os.WriteFile(n.path(name), []byte(text), 0o600))
}

// runPod adds a pod of the API server whose containers run.
func (n *kubeletNode) runPod(pod *corev1.Pod) {
	n.pods = append(n.pods, pod)
	n.runtime.pods = append(n.runtime.pods, observe(pod))
	require.NoError(n, os.MkdirAll(n.path("pods/"+string(pod.UID)), 0o700))
}

// check reads the node and decides. It proves that no file changes: neither names, sizes, modes, times nor content.
func (n *kubeletNode) check() changeover.Report {
	n.Helper()
	n.write("config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+n.config)
	before := n.listFiles()
	d, settings := kubeletconfig.Load(n.path("config.yaml"))
	d.Node.RootDir, d.Node.NodeName, d.Node.Kubeconfig = n.root, "node", n.path("kubelet.conf")
	read, err := changeover.Read(n.Context(), &d, settings, n.options)
	require.NoError(n, err)
	report := changeover.Decide(read)
	require.Equal(n, before, n.listFiles(), "the check changes nothing")
	return report
}

// listFiles returns a line for each file below root, with its metadata and content.
func (n *kubeletNode) listFiles() (lines []string) {
	require.NoError(n, filepath.WalkDir(n.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var content []byte
		if entry.Type().IsRegular() {
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s %d %s %q", path, info.Mode(), info.Size(), info.ModTime(), content))
		return nil
	}))
	return lines
}

// outcomes returns the outcomes by the names of the pods.
func outcomes(r changeover.Report) map[string]changeover.Outcome {
	all := map[string]changeover.Outcome{}
	for _, p := range r.Pods {
		all[p.Name] = p.Outcome
	}
	return all
}

// A node with the files of a kubelet: each pod has its outcome, and no file changes.
func TestReadFindsReasonsInFilesOfAKubelet(t *testing.T) {
	n := newKubeletNode(t)
	checkpoint, err := os.ReadFile("../../device/plugin/testdata/kubelet_internal_checkpoint")
	require.NoError(t, err)
	n.write("device-plugins/"+plugin.CheckpointName, string(checkpoint))
	previous, err := plugin.ReadCheckpoint(n.path("device-plugins/" + plugin.CheckpointName))
	require.NoError(t, err)
	require.NotEmpty(t, previous.Resources)

	n.runPod(newPod("web"))
	pinned, gpu := newPod("pinned"), newPod("gpu")
	setLimit(gpu, corev1.ResourceName(previous.Resources[0]))
	n.runPod(pinned)
	n.runPod(gpu)
	state, err := cpus.EncodeCheckpoint(cpus.PolicyStatic, cpus.State{
		Shared: topology.NewCPUSet(0, 1), Assigned: map[string]map[string]topology.CPUSet{"uid-web": {"main": topology.NewCPUSet(2, 3)}},
	})
	require.NoError(t, err)
	n.write(cpus.CheckpointName, string(state))
	require.NoError(t, numa.WriteCheckpoint(n.path(numa.CheckpointName), numa.Saved{Policy: numa.PolicyStatic, Pods: map[string]map[string][]numa.Block{
		"uid-pinned": {"main": {{Type: numa.Memory, Nodes: 1, Size: 1 << 20}}},
	}}))
	n.write("allocated_pods_state", `{"data":"damaged`)
	mirror := newPod("mirror")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	n.pods = append(n.pods, mirror)
	orphan := observe(newPod("orphan"))
	n.runtime.pods = append(n.runtime.pods, orphan)
	require.NoError(t, os.MkdirAll(n.path("pods/uid-orphan/volumes/kubernetes.io~csi/pv1"), 0o700))
	n.write("manifests/static.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: static}\nspec: {containers: [{name: c, image: i}]}\n")

	r := n.check()
	assert.Equal(t, map[string]changeover.Outcome{
		"web": changeover.Keeps, "pinned": changeover.Keeps, "gpu": changeover.Loses, "orphan": changeover.Stops, "static-node": changeover.Keeps,
	}, outcomes(r), r.Text())
	assert.Contains(t, r.Text(), "pod ns/orphan: stops: no source lists it: its containers are removed; its volumes need to be unmounted by hand: volumes/kubernetes.io~csi/pv1\n")
	assert.Empty(t, r.Settings)
	assert.Empty(t, r.Node)
	assert.Empty(t, r.Unread)
	assert.Equal(t, changeover.ExitChanges, r.ExitCode())
}

// Settings that are not supported and a machine that the agent refuses are reported, and the pods nevertheless.
func TestReadReportsSettingsAndMachine(t *testing.T) {
	n := newKubeletNode(t)
	n.runPod(newPod("web"))
	n.write("proc/swaps", "Filename Type\n/swap\tfile\n")
	n.config += "memoryReservationPolicy: TieredReservation\nport: 70000\n"
	r := n.check()
	assert.Equal(t, []string{
		n.path("config.yaml") + `: memoryReservationPolicy: "TieredReservation" is not supported by this version, want "None"`,
		n.path("config.yaml") + ": port: 70000 is not between 1 and 65535",
	}, r.Settings)
	require.Len(t, r.Node, 1)
	assert.Contains(t, r.Node[0], `failSwapOn: true, but the machine has swap: "/swap"`)
	assert.Equal(t, map[string]changeover.Outcome{"web": changeover.Keeps}, outcomes(r))
	assert.Equal(t, changeover.ExitChanges, r.ExitCode())
}

// Without the API server the pods are those of the kubelet's page /pods, and without that unknown.
func TestReadWithoutAPIServer(t *testing.T) {
	n := newKubeletNode(t)
	n.runPod(newPod("web"))
	n.write("device-plugins/"+plugin.CheckpointName, "{")
	n.write("cpu_manager_state", "{")
	n.write("memory_manager_state", "{")
	n.options.APIPods = func(context.Context) ([]*corev1.Pod, error) { return nil, errors.New("connection refused") }
	r := n.check()
	assert.Equal(t, map[string]changeover.Outcome{"web": changeover.Unknown}, outcomes(r))
	assert.Len(t, r.Unread, 5, r.Text())
	assert.Contains(t, r.Text(), "not read: pods of the API server: connection refused\nnot read: pods of the kubelet: readOnlyPort is not set\n")
	assert.Equal(t, changeover.ExitUnread, r.ExitCode())

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/pods", r.URL.Path)
		list := corev1.PodList{Items: []corev1.Pod{*newPod("web")}}
		assert.NoError(t, json.NewEncoder(w).Encode(list))
	}))
	defer server.Close()
	address := netip.MustParseAddrPort(server.Listener.Addr().String())
	n.config += fmt.Sprintf("address: %s\nreadOnlyPort: %d\n", address.Addr(), address.Port())
	r = n.check()
	assert.Equal(t, map[string]changeover.Outcome{"web": changeover.Keeps}, outcomes(r))
	assert.Equal(t, changeover.ExitUnread, r.ExitCode(), "the API server was not read")
}

// A pod whose cgroup is missing or cannot be read is not a pod that keeps running.
func TestReadChecksCgroups(t *testing.T) {
	n := newKubeletNode(t)
	for _, name := range []string{"web", "lost", "hidden"} {
		n.runPod(newPod(name))
	}
	idle := newPod("idle")
	n.pods = append(n.pods, idle)
	n.options.HasCgroup = func(_ context.Context, pod *corev1.Pod) (bool, error) {
		assert.NotEqual(t, "idle", pod.Name, "it does not run")
		if pod.Name == "hidden" {
			return false, errors.New("permission denied")
		}
		return pod.Name == "web", nil
	}
	assert.Equal(t, map[string]changeover.Outcome{
		"web": changeover.Keeps, "lost": changeover.Restarts, "hidden": changeover.Unknown, "idle": changeover.Keeps,
	}, outcomes(n.check()))
}

// A runtime that cannot be listed is an error: nothing is known of the node.
func TestReadNeedsTheRuntime(t *testing.T) {
	n := newKubeletNode(t)
	var d kubeletconfig.Documents
	d.Node.RootDir, d.Kubelet.ContainerRuntimeEndpoint = n.root, "unix://"+n.path("missing.sock")
	n.options.Runtime = nil
	_, err := changeover.Read(t.Context(), &d, nil, n.options)
	require.ErrorContains(t, err, "list the containers of unix://")
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	n.runtime.err = errors.New("broken")
	n.options.Runtime = &n.runtime
	_, err = changeover.Read(ctx, &d, nil, n.options)
	require.ErrorContains(t, err, "broken")
}

// Volumes with claims have the plugins of their PVs. A type without a plugin, and a claim that does not exist, are losses; after a failed request the
// remaining pods with claims are unknown.
func TestReadChecksClaims(t *testing.T) {
	n := newKubeletNode(t)
	claims := &volumetest.Claims{}
	claim := func(name string, source corev1.PersistentVolumeSource, options ...string) *corev1.Pod {
		pod := newPod(name)
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		n.runPod(pod)
		if source != (corev1.PersistentVolumeSource{}) {
			claims.Bind("ns", name, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: source, MountOptions: options,
			}})
		}
		return pod
	}
	claim("csi", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}, "noatime")
	claim("local", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}})
	claim("options", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}, "noatime")
	claim("iscsi", corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{}})
	claim("missing", corev1.PersistentVolumeSource{})
	claim("unused", corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}}).Spec.Containers[0].VolumeMounts = nil
	claim("done", corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}}).Status.Phase = corev1.PodSucceeded
	n.options.Claims = claims
	r := n.check()
	want := map[string]changeover.Outcome{
		"csi": changeover.Keeps, "local": changeover.Keeps, "options": changeover.Loses, "iscsi": changeover.Loses, "missing": changeover.Loses, "unused": changeover.Keeps,
	}
	got := outcomes(r)
	delete(got, "done") // its containers run although its phase is terminal: they are stopped
	assert.Equal(t, want, got, r.Text())
	assert.Contains(t, r.Text(), "pod ns/iscsi: loses: volume data: there is no plugin for iscsi volumes: its containers do not start again\n")
	assert.Contains(t, r.Text(), "pod ns/options: loses: volume data: mount options are not supported for this volume type: ")
	assert.Contains(t, r.Text(), "pod ns/missing: loses: volume data: error processing PVC ns/missing: ")
	assert.Empty(t, r.Unread)

	n.options.Claims = nil // the kubeconfig does not exist
	r = n.check()
	assert.Equal(t, changeover.Unknown, outcomes(r)["csi"], r.Text())
	assert.Contains(t, r.Text(), "not read: claims: ")
	assert.Equal(t, changeover.ExitUnread, r.ExitCode())
}

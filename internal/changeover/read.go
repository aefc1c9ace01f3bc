// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package changeover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/internal/lifecycle/kubeletstate"
	"github.com/seed81659283/nodeagent/internal/lifecycle/ownership"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/volume"
)

// readTimeout limits all requests of Read together.
const readTimeout = 2 * time.Minute

// Runtime is the part of a container runtime that Read calls: it lists, and changes nothing.
type Runtime interface {
	cri.Lister
	cri.StatusReporter
}

// Options replaces sources of Read. The zero value reads this machine.
type Options struct {
	// Runtime lists the containers. If it implements [cri.Inspector], Read also calls its methods. Nil: the runtime at containerRuntimeEndpoint.
	Runtime Runtime
	// APIPods returns the pods of the node in the API server. Nil: Read lists them with the kubeconfig.
	APIPods func(ctx context.Context) ([]*corev1.Pod, error)
	// Claims reads the claims of pods and their PVs. Nil: Read reads them with the kubeconfig.
	Claims volume.Claims
	// HasCgroup reports whether the cgroup of a pod exists where the agent expects it. Nil: Read looks at the cgroups of this machine.
	HasCgroup func(ctx context.Context, pod *corev1.Pod) (bool, error)
	// Proc is the directory /proc. Empty: that of this machine.
	Proc string
}

// Read reads the node for which d is the configuration of the kubelet. settings is the error of reading d, of which each line is a setting that is not
// supported; nil: none. Read sets the defaults of d. It returns an error if the container runtime cannot be read.
func Read(ctx context.Context, d *kubeletconfig.Documents, settings error, o Options) (n Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	n.Now = time.Now()
	n.Settings = splitErrors(settings)
	if err := d.SetDefaults(); err != nil {
		return n, err
	}
	d.Node.AdoptPods = true
	for _, line := range splitErrors(d.Validate()) {
		if !slices.Contains(n.Settings, line) {
			n.Settings = append(n.Settings, line)
		}
	}
	n.Problems = splitErrors(d.CheckHost(o.Proc))
	n.Cluster, n.Sysctls, n.AppArmor = d.InCluster(), d.Kubelet.AllowedUnsafeSysctls, machine.AppArmor(os.DirFS("/"))
	if o.Runtime == nil {
		endpoint := d.Kubelet.ContainerRuntimeEndpoint
		client, err := remote.Dial(endpoint, remote.Options{})
		if err != nil {
			return n, fmt.Errorf("containerRuntimeEndpoint: %w", err)
		}
		defer client.Close()
		o.Runtime = client
	}
	snapshot, err := listAll(ctx, o.Runtime)
	if err != nil {
		return n, fmt.Errorf("list the containers of %s: %w", d.Kubelet.ContainerRuntimeEndpoint, err)
	}
	r := reader{config: d, options: o, node: &n}
	r.readFiles()
	r.joinPods(snapshot, r.listPods(ctx))
	r.checkClaims(ctx)
	r.checkCgroups(ctx)
	return n, nil
}

// reader fills a Node.
type reader struct {
	config  *kubeletconfig.Documents
	options Options
	node    *Node
}

// addUnread records the error of a source; nil is ignored.
func (r *reader) addUnread(source string, err error) {
	if err != nil {
		r.node.Unread = append(r.node.Unread, fmt.Sprintf("%s: %v", source, err))
	}
}

// listAll lists sandboxes and containers with all fields.
func listAll(ctx context.Context, runtime Runtime) (cri.Snapshot, error) {
	snapshot, err := runtime.List(ctx)
	inspector, ok := runtime.(cri.Inspector)
	if err != nil || !ok {
		return snapshot, err
	}
	for i := range snapshot.Sandboxes {
		listed := &snapshot.Sandboxes[i]
		found, err := inspector.SandboxStatus(ctx, listed.ID)
		if errors.Is(err, cri.ErrNotFound) {
			continue // removed since the list
		}
		if err != nil {
			return snapshot, err
		}
		listed.IPs, listed.Namespaces, listed.State = found.IPs, found.Namespaces, found.State
	}
	for i := range snapshot.Containers {
		listed := &snapshot.Containers[i]
		found, err := inspector.ContainerStatus(ctx, listed.ID)
		if errors.Is(err, cri.ErrNotFound) {
			continue
		}
		if err != nil {
			return snapshot, err
		}
		found.ID, found.SandboxID, found.PodUID, found.Name, found.Attempt = listed.ID, listed.SandboxID, listed.PodUID, listed.Name, listed.Attempt
		*listed = found
	}
	return snapshot, nil
}

// readFiles reads the files of the kubelet and the owner of an earlier agent.
func (r *reader) readFiles() {
	root, quiet := r.config.Node.RootDir, slog.New(slog.DiscardHandler)
	pods := filepath.Join(root, "pods")
	owner, err := readOwner(pods)
	r.addUnread("owner of containers", err)
	r.node.Owner = ownership.Owner{Mark: owner, AdoptsUnlabeled: true}
	r.node.Devices, err = plugin.ReadCheckpoint(filepath.Join(root, "device-plugins", plugin.CheckpointName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.node.DevicesErr = err
		r.addUnread("checkpoint of devices", err)
	}
	r.node.Allocation = kubeletstate.Read(root, pods, quiet).Allocation
	r.addUnread("state of the CPU manager", checkCPUs(filepath.Join(root, cpus.CheckpointName)))
	r.addUnread("state of the memory manager", checkMemory(filepath.Join(root, numa.CheckpointName)))
}

// joinPods joins the pods of the sources with those of the runtime.
func (r *reader) joinPods(snapshot cri.Snapshot, listed []*corev1.Pod) {
	observed := map[string]cri.Pod{}
	for pod := range snapshot.Pods() {
		observed[pod.UID] = pod
	}
	volumes, damaged := r.findVolumes()
	add := func(p Pod, uid string) {
		p.Volumes, p.Err = volumes[uid], damaged[uid]
		r.node.Pods = append(r.node.Pods, p)
	}
	for _, pod := range listed {
		uid := string(pod.UID)
		add(Pod{Pod: pod, Observed: observed[uid]}, uid)
		delete(observed, uid)
	}
	for uid, pod := range observed {
		add(Pod{Observed: pod}, uid)
	}
}

// checkCgroups records which running pods have no cgroup.
func (r *reader) checkCgroups(ctx context.Context) {
	if !*r.config.Kubelet.CgroupsPerQOS {
		return
	}
	exists := r.options.HasCgroup
	if exists == nil {
		tree, closeTree, err := r.openCgroups(ctx)
		if err != nil {
			r.node.Problems = append(r.node.Problems, fmt.Sprintf("cgroups: %v", err))
			return
		}
		defer closeTree()
		exists = tree.Exists
	}
	for i := range r.node.Pods {
		p := &r.node.Pods[i]
		if p.Pod == nil || !podview.IsRunning(p.Observed) {
			continue
		}
		found, err := exists(ctx, p.Pod)
		p.CgroupMissing = err == nil && !found
		p.Err = errors.Join(p.Err, err)
	}
}

// splitErrors returns the texts of the errors that err joins, or of err itself. Nil: none.
func splitErrors(err error) (lines []string) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // not those that err wraps
		for _, one := range joined.Unwrap() {
			lines = append(lines, splitErrors(one)...)
		}
		return lines
	}
	return strings.Split(err.Error(), "\n")
}

// localAddress returns an address on which this machine can reach a server that listens on address.
func localAddress(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return address
}

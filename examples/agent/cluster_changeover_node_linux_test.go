// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// turnNode is a shared node of a cluster, with CSI drivers of both kinds and a device plugin, whose program changes.
type turnNode struct {
	*sharedNode
	m       *member
	csi     *csiNode
	gadgets *gadgetNode
	log     *changeLog
	kubelet string // a script that runs the kubelet
	fields  map[string]any
	flags   []string

	current  string           // the program that runs now, or ran last
	previous string           // the program that ran before it; empty: none
	p        *exetest.Process // of the current program
	output   string           // of the last program, without the lines after the signal that ended it
	plugin   *exetest.Process // the device plugin
	written  atomic.Int64     // the last text of the config map greeting
}

// newTurnNode starts a control plane and the CSI drivers. Neither program runs.
func newTurnNode(t *testing.T) *turnNode {
	needCluster(t)
	csi := newCSINode(t)
	gadgets := addGadgets(t, csi.node, "a", "b", "c", "d")
	n := &turnNode{sharedNode: shareNode(t, csi.node), csi: csi, gadgets: gadgets}
	n.kubelet = n.wrapKubelet(gadgets.pluginDir())
	address := n.lab.Subnet().Addr().Next().String()
	n.m = n.node.joinCluster(t, map[string]any{"nodeIPs": []string{address}, "adoptPods": true}, false)
	n.m.agent.Terminate(timeout)
	n.fields = map[string]any{
		"authentication": map[string]any{
			"x509": n.m.config["authentication"].(map[string]any)["x509"], "webhook": map[string]any{"enabled": false}, "anonymous": map[string]any{"enabled": false},
		},
		"containerLogMaxSize": "20Ki", "containerLogMaxFiles": 3, "containerLogMonitorInterval": "3s",
	}
	n.flags = []string{"--kubeconfig=" + n.m.config["kubeconfig"].(string), "--node-ip=" + address}
	n.log = startChangeLog(t, n.node, n.m.Admin())
	registry := filepath.Join(n.state, "plugins_registry")
	csi.startDriverAs(loopName, csi.data, registry)
	csi.startDriverAs(diskName, csi.data+"-disks", registry)
	n.startController(t)
	return n
}

// startController starts a controller that marks each VolumeAttachment as attached, like the external attacher of a driver, until the test ends.
func (n *turnNode) startController(t *testing.T) {
	const path = "/apis/storage.k8s.io/v1/volumeattachments"
	n.every(t, time.Second, func(ctx context.Context) error {
		var list storagev1.VolumeAttachmentList
		if err := n.m.Admin().Do(ctx, http.MethodGet, path, nil, &list); err != nil {
			return err
		}
		for _, a := range list.Items {
			if a.Status.Attached {
				continue
			}
			if err := n.m.Admin().Do(ctx, http.MethodPatch, path+"/"+a.Name+"/status", map[string]any{"status": map[string]any{"attached": true}}, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// every calls work at once and after each period, until stop is called or the test ends. Errors are noted in the log: the work is repeated.
func (n *turnNode) every(t *testing.T, period time.Duration, work func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	wg.Go(func() {
		for ctx.Err() == nil {
			call, cancel := context.WithTimeout(ctx, timeout)
			if err := work(call); err != nil && ctx.Err() == nil {
				n.log.note("load: %v", err)
			}
			cancel()
			select {
			case <-ctx.Done():
			case <-time.After(period):
			}
		}
	})
	return stop
}

// startLoad starts a writer of the config map greeting, and a scaler of the Deployment moving.
func (n *turnNode) startLoad(t *testing.T, replicas func() int) (stop func()) {
	client := n.m.Admin()
	stopWriter := n.every(t, 5*time.Second, func(ctx context.Context) error {
		next := n.written.Load() + 1
		err := client.Do(ctx, http.MethodPatch, pathMaps+"/greeting", map[string]any{"data": map[string]string{"text": strconv.FormatInt(next, 10)}}, nil)
		if err == nil {
			n.written.Store(next)
		}
		return err
	})
	stopScaler := n.every(t, 10*time.Second, func(ctx context.Context) error {
		var d appsv1.Deployment
		return client.Do(ctx, http.MethodPatch, "/apis/apps/v1/namespaces/default/deployments/moving", map[string]any{"spec": map[string]any{"replicas": replicas()}}, &d)
	})
	return func() { stopWriter(); stopScaler() }
}

// start starts a program, and the device plugin once it can register.
func (n *turnNode) start(program string) {
	n.t.Helper()
	_ = os.Remove(filepath.Join(n.gadgets.pluginDir(), "kubelet.sock"))
	n.previous, n.current = n.current, program
	n.log.setNormal(nil)
	if program == n.kubelet {
		n.log.setNormal(isNormalForKubelet)
	}
	n.p = n.startProgram(program, n.fields, n.flags...)
	n.log.note("start of %s", n.name())
	exetest.Eventually(n.t, timeout, func() error {
		_, err := os.Lstat(filepath.Join(n.gadgets.pluginDir(), "kubelet.sock"))
		return err
	})
	n.plugin = n.gadgets.startPlugin()
}

// name returns the name of the current program in logs.
func (n *turnNode) name() string {
	if n.current == n.ours {
		return "the agent"
	}
	return "the kubelet"
}

// stop ends the current program and the device plugin.
func (n *turnNode) stop(kill bool) {
	n.t.Helper()
	n.log.note("end of %s, killed: %t", n.name(), kill)
	n.output = n.p.Output()
	if kill {
		n.p.Kill()
	} else {
		n.p.Terminate(timeout)
	}
	n.plugin.Kill()
}

// other returns the program that does not run.
func (n *turnNode) other() string {
	if n.current == n.ours {
		return n.kubelet
	}
	return n.ours
}

// createKinds creates the pods of kinds, and waits until they run, each container for the last time.
func (n *turnNode) createKinds(kinds []podKind) {
	n.t.Helper()
	n.m.apply(movingObjects)
	disks := n.csi.data + "-disks"
	for _, k := range kinds {
		for _, name := range k.names("") {
			switch {
			case k.static:
				n.manifests.Write(name+".yaml", k.podText(name, "standing"))
			case strings.Contains(k.objects, "disk.csi.example"):
				makeDisk(n.t, disks, name, 16<<20)
			case k.objects != "":
				makeDisk(n.t, n.csi.data, name, 16<<20)
			}
		}
		if !k.static {
			n.m.apply(k.podTexts(k.names(""), "standing"))
		}
	}
	exetest.Eventually(n.t, 3*clusterTimeout, func() error { return n.checkSettled(kinds) })
}

// checkSettled returns an error unless all pods of kinds run, are ready, and have restarted as often as they will.
func (n *turnNode) checkSettled(kinds []podKind) error {
	pods := n.standingPods()
	count := 0
	for _, k := range kinds {
		count += k.count
	}
	if len(pods) != count {
		return fmt.Errorf("%d of %d pods exist", len(pods), count)
	}
	for _, pod := range pods {
		phase, ready, restarts := corev1.PodRunning, true, int32(0)
		switch {
		case strings.HasPrefix(pod.Name, "job-"):
			phase, ready = corev1.PodSucceeded, false
		case strings.HasPrefix(pod.Name, "startup-"):
			restarts = 1
		}
		statuses := pod.Status.ContainerStatuses
		if pod.Status.Phase != phase || len(statuses) != 1 || statuses[0].Ready != ready || statuses[0].RestartCount != restarts {
			return fmt.Errorf("pod %s: %s\n%s", pod.Name, summarizePod(&pod), n.m.describeEvents(pod.Name))
		}
	}
	return nil
}

// describeEvents returns the messages of the events of a pod.
func (m *member) describeEvents(pod string) string {
	text, err := m.try("", "get", "events", "--field-selector", "involvedObject.name="+pod, "-o", `jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
	if err != nil {
		return err.Error()
	}
	return text
}

// standingPods returns the pods of all kinds from the API server.
func (n *turnNode) standingPods() []corev1.Pod { return n.m.listPods("app=standing") }

// standingRecord returns the lines of record about the sandboxes, containers and mounts of the standing pods.
func (n *turnNode) standingRecord(pods []corev1.Pod) []string {
	n.t.Helper()
	return slices.DeleteFunc(n.record(), func(line string) bool {
		return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
			uid := string(pod.UID)
			if mirrored := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirrored != "" {
				uid = mirrored
			}
			return strings.HasPrefix(line, pod.Name+" ") || strings.Contains(line, "/pods/"+uid+"/")
		})
	})
}

// standingContainers returns "POD CONTAINER" of the containers of the pods by their IDs.
func standingContainers(pods []corev1.Pod) map[string]string {
	all := map[string]string{}
	for i := range pods {
		for _, c := range slices.Concat(pods[i].Status.InitContainerStatuses, pods[i].Status.ContainerStatuses) {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			all[id] = pods[i].Name + " " + c.Name
		}
	}
	return all
}

// awaitText waits until all pods of kind config have a text of the config map that is newer than since.
func (n *turnNode) awaitText(pods []corev1.Pod, since int64) {
	n.t.Helper()
	began := time.Now()
	exetest.Eventually(n.t, 3*time.Minute, func() error {
		for i := range pods {
			if !strings.HasPrefix(pods[i].Name, "config-") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(n.state, "pods", string(pods[i].UID), "volumes/kubernetes.io~configmap/greeting/text"))
			if err != nil {
				return err
			}
			if got, err := strconv.ParseInt(string(text), 10, 64); err != nil || got <= since {
				return fmt.Errorf("pod %s has the text %q, and %d is older: %w", pods[i].Name, text, since, err)
			}
		}
		return nil
	})
	n.log.note("volumes follow the config map after %v", time.Since(began).Round(time.Second))
}

// rotatedLogs returns the rotated log files of the pod of kind chatty.
func (n *turnNode) rotatedLogs() map[string]bool {
	n.t.Helper()
	paths, err := filepath.Glob(filepath.Join(n.logs, "default_chatty-0_*", "main", "0.log.2*"))
	require.NoError(n.t, err)
	found := map[string]bool{}
	for _, path := range paths {
		found[strings.TrimSuffix(filepath.Base(path), ".gz")] = true
	}
	return found
}

// awaitRotation waits until the current program has rotated a log. before has the files of its predecessor.
func (n *turnNode) awaitRotation(before map[string]bool) {
	n.t.Helper()
	exetest.Eventually(n.t, 2*timeout, func() error {
		now := n.rotatedLogs()
		for name := range now {
			if !before[name] {
				return nil
			}
		}
		return fmt.Errorf("only old log files: %v", slices.Sorted(maps.Keys(now)))
	})
}

// requireNothingLeft waits until no trace of any pod remains: no container, network, mount, file, device, attachment or cgroup.
func (n *turnNode) requireNothingLeft() {
	n.t.Helper()
	n.awaitNoLeftovers(clusterTimeout)
	n.requireNoPodFiles()
	n.csi.awaitNoVolumes()
	n.m.eventually(clusterTimeout, "get", "volumeattachments", "-o", "name")("")
	n.m.eventually(clusterTimeout, "get", "node", "n1", "-o", "jsonpath={.status.volumesInUse}")("")
	exetest.Eventually(n.t, timeout, func() error {
		for _, pattern := range []string{"/sys/fs/cgroup/*%s/kubepods/pod*", "/sys/fs/cgroup/*%s/kubepods/*/pod*", "/sys/fs/cgroup%s/kubepods/pod*", "/sys/fs/cgroup%s/kubepods/*/pod*"} {
			left, err := filepath.Glob(fmt.Sprintf(pattern, n.root))
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("remaining cgroups: %q", left)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

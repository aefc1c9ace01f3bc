// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/server"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

// ConformanceHost returns the backend of the kubelet's HTTP server, for these API objects and running pods. files has the
// paths of container logs by container ID. A session such as exec fails with an error that describes the request to the
// runtime.
func ConformanceHost(pods []*v1.Pod, running []*kubecontainer.Pod, files map[string]string, nodeLogs string) server.HostInterface {
	fake := &conformanceRuntime{running: running, files: files}
	kl := &Kubelet{
		podManager: kubepod.NewBasicPodManager(), containerRuntime: fake, streamingRuntime: fake, runner: fake,
		runtimeCache: conformanceCache{running}, statusManager: conformanceStatuses{}, rootDirectory: "/checkpointed",
		logServer: http.StripPrefix("/logs/", http.FileServer(http.Dir(nodeLogs))),
	}
	kl.podManager.SetPods(pods)
	return kl
}

// conformanceStatuses has no pod statuses, so that the server uses the statuses in the API objects.
type conformanceStatuses struct{ status.Manager }

func (conformanceStatuses) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

type conformanceRuntime struct {
	kubecontainer.Runtime

	running []*kubecontainer.Pod
	files   map[string]string
}

func (r *conformanceRuntime) GetPods(context.Context, bool) ([]*kubecontainer.Pod, error) {
	return r.running, nil
}

type conformanceCache struct{ running []*kubecontainer.Pod }

func (c conformanceCache) GetPods(context.Context) ([]*kubecontainer.Pod, error) {
	return c.running, nil
}

func (conformanceCache) ForceUpdateIfOlder(context.Context, time.Time) error { return nil }

func (r *conformanceRuntime) GetContainerLogs(
	ctx context.Context, _ *v1.Pod, id kubecontainer.ContainerID, o *v1.PodLogOptions, stdout, stderr io.Writer,
) error {
	path, found := r.files[id.ID]
	if !found {
		return fmt.Errorf("unable to retrieve container logs for %v", id.String())
	}
	since := time.Time{}
	if o.SinceSeconds != nil {
		since = time.Now().Add(-time.Duration(*o.SinceSeconds) * time.Second)
	}
	if o.SinceTime != nil && o.SinceTime.After(since) {
		since = o.SinceTime.Time
	}
	return logs.ReadLogs(ctx, path, id.ID, &logs.LogOptions{
		TailLines: o.TailLines, LimitBytes: o.LimitBytes, Timestamp: o.Timestamps, Since: since,
	}, nil, stdout, stderr)
}

func (r *conformanceRuntime) GetExec(
	_ context.Context, id kubecontainer.ContainerID, cmd []string, stdin, stdout, stderr, tty bool,
) (*url.URL, error) {
	return nil, fmt.Errorf("exec %s %q %t %t %t %t", id.ID, cmd, stdin, stdout, stderr, tty)
}

func (r *conformanceRuntime) GetAttach(_ context.Context, id kubecontainer.ContainerID, stdin, stdout, stderr, tty bool) (*url.URL, error) {
	return nil, fmt.Errorf("attach %s %t %t %t %t", id.ID, stdin, stdout, stderr && !tty, tty)
}

func (r *conformanceRuntime) GetPortForward(_ context.Context, name, namespace string, uid types.UID, ports []int32) (*url.URL, error) {
	return nil, fmt.Errorf("forward %s %v", uid, ports)
}

func (r *conformanceRuntime) RunInContainer(_ context.Context, id kubecontainer.ContainerID, cmd []string, _ time.Duration) ([]byte, error) {
	if cmd[0] == "fail" {
		return []byte("lost"), fmt.Errorf("command 'fail' exited with 3: trouble")
	}
	return []byte(fmt.Sprintf("ran %q in %s", cmd, id.ID)), nil
}

func (r *conformanceRuntime) CheckpointContainer(_ context.Context, o *runtimeapi.CheckpointContainerRequest) error {
	if o.Timeout == 7 {
		return fmt.Errorf("checkpoint %s", o.ContainerId)
	}
	return nil
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	internalapi "k8s.io/cri-api/pkg/apis"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
)

// ConformanceParts has the components that a runtime manager calls.
type ConformanceParts struct {
	Runtime           internalapi.RuntimeService
	Images            internalapi.ImageManagerService
	Puller            images.ImageManager
	Kubelet           kubecontainer.RuntimeHelper
	OS                kubecontainer.OSInterface
	Hooks             kubecontainer.HandlerRunner
	Liveness, Startup proberesults.Manager
}

// NewConformanceManager returns the kubelet's runtime manager. It syncs pods by calling the components in p.
func NewConformanceManager(ctx context.Context, p ConformanceParts) (KubeGenericRuntime, error) {
	m, err := newFakeKubeRuntimeManager(ctx, p.Runtime, p.Images, &cadvisorapi.MachineInfo{MemoryCapacity: 32 << 30}, p.OS, p.Kubelet,
		nil, &record.FakeRecorder{})
	if err != nil {
		return nil, err
	}
	m.imagePuller, m.runner = p.Puller, p.Hooks
	m.livenessManager, m.startupManager = p.Liveness, p.Startup
	m.podLogsDirectory = "/nonexistent" // the attempt of a container is not read from its logs
	return m, nil
}

// ConformanceOrder returns the termination order of the running containers of pod. For each container name, the result has
// the containers that must terminate before it.
func ConformanceOrder(pod *v1.Pod, running []string) map[string][]string {
	order := newTerminationOrdering(pod, running)
	waits := map[string][]string{}
	for name, channels := range order.prereqs {
		for other, ended := range order.terminated {
			for _, c := range channels {
				if c != ended {
					continue
				}
				select {
				case <-c: // the container is not running
				default:
					waits[name] = append(waits[name], other)
				}
			}
		}
	}
	return waits
}

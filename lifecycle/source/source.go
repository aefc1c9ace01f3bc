// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// Source lists the pods of a node that come from one place, such as a directory.
type Source interface {
	// Name returns the name of the source, which is unique on the node.
	Name() string
	// Run calls set with all pods of the source, first at its start and then after each change, until ctx ends. The source must
	// not change the pods after the call. [Feed] sets PodSet.Source to the result of Name. If Run returns an error before ctx
	// ends, Feed.Run stops all sources.
	Run(ctx context.Context, set func(lifecycle.PodSet)) error
}

// New returns a Source whose Run method calls run(ctx, set). This function must call set with the pods, first at once and
// then after each change, until ctx ends. For example, it can get the pods from [Dir.Run].
func New(name string, run func(ctx context.Context, set func(lifecycle.PodSet)) error) Source {
	return funcSource{name, run}
}

type funcSource struct {
	name string
	run  func(ctx context.Context, set func(lifecycle.PodSet)) error
}

func (f funcSource) Name() string { return f.name }

func (f funcSource) Run(ctx context.Context, set func(lifecycle.PodSet)) error {
	return f.run(ctx, set)
}

// Manifests returns a Source of static pods from manifests. run is the Run method of a [Dir] or an [HTTP]. Errors of the
// manifests are logged to log.
func Manifests(name string, run func(ctx context.Context, sink func(Update)) error, log *slog.Logger) Source {
	return New(name, func(ctx context.Context, set func(lifecycle.PodSet)) error {
		return run(ctx, func(u Update) {
			for _, err := range u.Errs {
				log.Error("manifest", "error", err)
			}
			set(u.PodSet)
		})
	})
}

// Pods returns a Source of pods that are built in code. Each list received from the channel replaces all previous pods, and the
// last list stays when the channel is closed. Unset fields get the defaults of an API server, and an empty namespace becomes
// "default". A pod without a UID gets a hash of its content as UID, so that a modified pod replaces the previous one. For static
// pods see [Static].
func Pods(name string, pods <-chan []*corev1.Pod) Source {
	return New(name, func(ctx context.Context, set func(lifecycle.PodSet)) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case built, open := <-pods:
				if !open {
					<-ctx.Done()
					return nil
				}
				complete := make([]*corev1.Pod, len(built))
				for i, pod := range built {
					complete[i] = completePod(pod)
				}
				set(lifecycle.PodSet{Source: name, Pods: complete})
			}
		}
	})
}

// completePod returns a copy of the pod with defaults, a namespace and a UID.
func completePod(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace = cmp.Or(pod.Namespace, metav1.NamespaceDefault)
	podapi.Default(pod)
	if pod.UID == "" {
		text, _ := json.Marshal(pod) // a pod can always be encoded
		sum := sha256.Sum256(text)
		pod.UID = types.UID(hex.EncodeToString(sum[:16]))
	}
	return pod
}

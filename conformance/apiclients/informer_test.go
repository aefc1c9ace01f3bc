// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiclients_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// eventLog is an event handler that records the names of objects.
type eventLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *eventLog) add(event string, obj any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		name = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, event+" "+name)
}

func (l *eventLog) handler() cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { l.add("add", obj) },
		UpdateFunc: func(before, obj any) {
			if before.(metav1.Object).GetResourceVersion() != obj.(metav1.Object).GetResourceVersion() {
				l.add("update", obj)
			}
		},
		DeleteFunc: func(obj any) { l.add("delete", obj) },
	}
}

// has reports whether the log ends with the lines.
func (l *eventLog) has(lines ...string) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.lines) >= len(lines) && fmt.Sprint(l.lines[len(l.lines)-len(lines):]) == fmt.Sprint(lines)
	}
}

func TestSharedInformerFollowsAndRecovers(t *testing.T) {
	runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		factory, pods := informers.NewSharedInformerFactory(f.clientset(), 0), f.clientset().CoreV1().Pods("default")
		defer factory.Shutdown()
		defer cancel()
		var log eventLog
		informer := factory.Core().V1().Pods().Informer()
		_, err := informer.AddEventHandler(log.handler())
		require.NoError(f, err)
		require.NoError(f, f.server.Put(newPod("first")))
		factory.Start(ctx.Done())
		f.awaitCondition(informer.HasSynced, "the informer has listed the pods")
		f.awaitCondition(log.has("add default/first"), "the pod of the list")

		pod, err := pods.Create(ctx, newPod("second"), metav1.CreateOptions{})
		require.NoError(f, err)
		f.awaitCondition(log.has("add default/second"), "the created pod")
		pod.Status.Phase = corev1.PodRunning
		_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		require.NoError(f, err)
		f.awaitCondition(log.has("update default/second"), "the updated pod")
		require.NoError(f, pods.Delete(ctx, "second", metav1.DeleteOptions{}))
		f.awaitCondition(log.has("delete default/second"), "the deleted pod")

		f.server.DisconnectAll()
		require.NoError(f, f.server.Put(newPod("third")))
		f.awaitCondition(log.has("add default/third"), "a pod that is created while the informer is disconnected")

		f.server.SetUnavailable(true)
		require.NoError(f, f.server.Remove(newPod("third")))
		f.server.Compact()
		f.server.SetUnavailable(false)
		f.awaitCondition(log.has("delete default/third"), "a pod whose deletion is not in the history")
		require.NoError(f, f.server.Put(newPod("fourth")))
		f.awaitCondition(log.has("add default/fourth"), "a pod after the relist")
		list, err := factory.Core().V1().Pods().Lister().List(everything)
		require.NoError(f, err)
		assert.Len(f, list, 2)
	})
}

func TestDynamicInformerFollowsCustomResources(t *testing.T) {
	runInMemoryAndOnListener(t, customKinds, func(f fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		client := dynamic.NewForConfigOrDie(f.config)
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
		defer factory.Shutdown()
		defer cancel()
		var log eventLog
		informer := factory.ForResource(widgets).Informer()
		_, err := informer.AddEventHandler(log.handler())
		require.NoError(f, err)
		require.NoError(f, f.server.Put(newWidget("a", 1)))
		factory.Start(ctx.Done())
		f.awaitCondition(log.has("add default/a"), "the object of the list")
		require.NoError(f, f.server.Put(newWidget("a", 2)))
		f.awaitCondition(log.has("update default/a"), "the updated object")
		f.server.DisconnectAll()
		f.server.Compact()
		require.NoError(f, client.Resource(widgets).Namespace("default").Delete(ctx, "a", metav1.DeleteOptions{}))
		f.awaitCondition(log.has("delete default/a"), "the deleted object")
	})
}

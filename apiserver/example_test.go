// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// The pods of a node, from an API server in memory.
func ExampleNew() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	if err := server.Put(newPod("web", "1", "")); err != nil {
		fmt.Println(err)
	}
	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = source.Pods().Run(ctx, func(u apiserver.Update) {
		for _, pod := range u.Pods {
			fmt.Println(u.Source, pod.Namespace+"/"+pod.Name)
		}
		cancel()
	})
	fmt.Println(err)
	// Output:
	// api default/web
	// <nil>
}

// An agent passes the pods of the API server to its reconciler, and reports their statuses through its hooks.
func ExampleNewParts() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	if err := server.Put(newPod("web", "1", "")); err != nil {
		fmt.Println(err)
	}
	var pods lifecycle.Handle // set to the reconciler, whose options have parts.Hooks()
	parts, err := apiserver.NewParts(server.Config(), apiserver.PartsOptions{
		NodeName: "n1", Pods: &pods, Node: func() *corev1.Node { return &corev1.Node{} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = parts.RunPods(ctx, func(s lifecycle.PodSet) {
		parts.Set(s) // after reconciler.Set, so that the objects of removed pods stay until then
		fmt.Println(s.Source, s.Pods[0].Name)
		cancel()
	})
	fmt.Println(err)
	// Output:
	// api web
	// <nil>
}

func ExamplePlanMirrors() {
	for _, action := range apiserver.PlanMirrors(
		[]*corev1.Pod{staticPod("web", "hash")}, []*corev1.Pod{mirrorPod("old", "hash", "uid")},
		apiserver.MirrorInput{Node: newNode(), SourcesComplete: true},
	) {
		fmt.Println(action.Name, "delete:", action.Delete != nil, "create:", action.Create != nil)
	}
	// Output:
	// web delete: false create: true
	// old delete: true create: false
}

// A program with its own informer selects the pods to run.
func ExampleMerge() {
	update := apiserver.Merge(apiserver.Update{}, []*corev1.Pod{newPod("web", "1", ""), mirrorPod("static", "hash", "uid")}, "n1")
	for _, pod := range update.Pods {
		fmt.Println(pod.Name, pod.Annotations["kubernetes.io/config.source"])
	}
	// Output: web api
}

// The objects for a container and a volume, and the service account of their pod.
func ExampleSource_Objects() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	name := metav1.ObjectMeta{Namespace: "default", Name: "app"}
	if err := server.Put(&corev1.ConfigMap{ObjectMeta: name, Data: map[string]string{"mode": "fast"}}, &corev1.ServiceAccount{ObjectMeta: name}); err != nil {
		fmt.Println(err)
	}
	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	objects, err := source.Objects(apiserver.ObjectsOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Volumes are watched while objects.Run runs; objects of variables are read when a container starts.
	pods, volumes := lifecycle.Options{Objects: objects}, intree.Options{Objects: objects.Volumes()}
	fmt.Println(pods.Objects != nil, volumes.Objects != nil)

	ctx := context.Background()
	variables, err := objects.ConfigMap(ctx, "default", "app")
	fmt.Println(variables.Data, err)
	_, err = objects.Secret(ctx, "default", "none")
	fmt.Println("no such secret:", errors.Is(err, fs.ErrNotExist))
	account, err := source.Tokens().Accounts().ServiceAccount(ctx, "default", "app") // used as credential.PluginOptions.Accounts
	fmt.Println("account:", account.UID != "", err)
	// Output:
	// true true
	// map[mode:fast] <nil>
	// no such secret: true
	// account: true <nil>
}

// The Recorder is a hook of a lifecycle.Reconciler, and records events of other objects too.
func ExampleRecorder() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	recorder := source.Recorder(apiserver.RecorderOptions{EventDropped: func(e *corev1.Event, why error) {
		if errors.Is(why, apiserver.ErrQueueFull) {
			fmt.Println("too many events:", e.Reason)
		}
	}})
	hooks := lifecycle.Hooks{Event: recorder.PodEvent}
	hooks.Event(cri.PodIdentity{Namespace: "default", Name: "web", UID: "u1"}, podevents.Event{Type: corev1.EventTypeNormal, Reason: "Started"})
	recorder.Event(corev1.ObjectReference{Kind: "ConfigMap", Namespace: "default", Name: "app"}, corev1.EventTypeWarning, "Outdated", "read it again")

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- recorder.Run(ctx) }()
	for recorder.Stats().Sent < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	fmt.Println(<-done)
	for _, e := range apiservertest.List[*corev1.Event](server) {
		fmt.Println(e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason)
	}
	// Unordered output:
	// <nil>
	// Pod web Started
	// ConfigMap app Outdated
}

// A node without Parts, for a program with other hooks: it prints the pods that were removed from the API server.
func ExampleSource_Statuses() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	objects, err := source.Objects(apiserver.ObjectsOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var pods lifecycle.Handle // set to the reconciler, which is created with the hooks below
	retainer := source.Retainer(objects, pods.Pods)
	recorder := source.Recorder(apiserver.RecorderOptions{})
	statuses, err := source.Statuses(apiserver.StatusesOptions{
		Pods: pods.Pods, MayRun: pods.MayRun,
		Hooks: apiserver.StatusHooks{PodDeleted: func(pod cri.PodIdentity) { fmt.Println("removed", pod.Name) }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mirrors, err := source.Mirrors(apiserver.MirrorsOptions{Node: func() *corev1.Node { return newNode() }})
	if err != nil {
		fmt.Println(err)
		return
	}
	hooks := lifecycle.Hooks{
		StatusChanged:     statuses.Changed,
		ResourcesReleased: statuses.ResourcesReleased,
		PodRemoved: func(pod cri.PodIdentity) {
			statuses.PodRemoved(pod)
			retainer.PodRemoved(pod.UID)
			mirrors.Changed()
		},
		Event:      recorder.PodEvent,
		PodRefused: recorder.PodRefused,
	}
	fmt.Println(hooks.StatusChanged != nil, hooks.ResourcesReleased != nil, hooks.PodRefused != nil)

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{statuses.Run, mirrors.Run, recorder.Run, objects.Run} {
		wg.Go(func() { _ = run(ctx) })
	}
	err = source.Pods().Run(ctx, func(u apiserver.Update) {
		retainer.Set(u.PodSet) // after reconciler.Set, so that the objects of removed pods stay until then
		cancel()
	})
	wg.Wait()
	fmt.Println(err)
	// Output:
	// true true true
	// <nil>
}

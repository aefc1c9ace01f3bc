// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
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

// A static pod that has no mirror yet, and a mirror whose static pod is gone.
func ExamplePlanMirrors() {
	for _, action := range apiserver.PlanMirrors(
		[]*corev1.Pod{staticPod("web", "hash")}, []*corev1.Pod{mirrorPod("old", "hash", "uid")},
		apiserver.MirrorFacts{Node: newNode(), Complete: true},
	) {
		fmt.Println(action.Name, "delete:", action.Delete != nil, "create:", action.Create != nil)
	}
	// Output:
	// web delete: false create: true
	// old delete: true create: false
}

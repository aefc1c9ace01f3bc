// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podset_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podset"
)

// Two sources list a pod with one UID. The first source keeps the UID until it no longer lists it.
func ExampleMerge_With() {
	show := func(merge *podset.Merge, refusals []podset.Refusal) *podset.Merge {
		for pod := range merge.Pods() {
			fmt.Print(merge.SourceOf(string(pod.UID)), ": ", pod.Name, "; ")
		}
		fmt.Println("complete:", merge.IsComplete())
		for _, r := range refusals {
			fmt.Println(r.Err)
		}
		return merge
	}
	set := func(source string, pods ...*corev1.Pod) podset.Accepted {
		return podset.Accepted{Set: podset.Set{Source: source, Pods: pods}}
	}
	merge := podset.NewMerge("file", "api")
	merge = show(merge.With(set("file", newPod("1/web"))))
	merge = show(merge.With(set("api", newPod("1/shop"), newPod("2/db"))))
	show(merge.With(set("file")))
	// Output:
	// file: web; complete: false
	// file: web; api: db; complete: true
	// pod default/shop: source "api" lists its UID 1, which belongs to a pod of source "file" until that pod is removed
	// api: shop; api: db; complete: true
}

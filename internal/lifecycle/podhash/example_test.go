// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podhash_test

import (
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podhash"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

func ExampleNew() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1"}}},
	}
	podapi.Default(pod)
	podhash.Default(pod)
	h := podhash.New(pod)
	fmt.Fprintf(h, "host:%sfile:%s", "node-1", "/etc/kubernetes/manifests/web.yaml")
	fmt.Println(hex.EncodeToString(h.Sum(nil)))
	// Output:
	// 29e311c1f006f8655460b99534285b8c
}

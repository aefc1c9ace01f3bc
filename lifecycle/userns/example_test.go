// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package userns_test

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/lifecycle/userns"
)

// A pod keeps its range, and no other pod gets an ID of it.
func ExampleNew() {
	root, err := os.MkdirTemp("", "pods")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	// The ranges below First are used for users of the host in /etc/subuid.
	ranges, err := userns.New(root, userns.Options{First: 8 * userns.Length, Count: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	a := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "1"}}
	b := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default", UID: "2"}}
	first, _ := ranges.Assign(a)
	other, _ := ranges.Assign(b)
	again, _ := ranges.Assign(a)
	fmt.Println(first.Length, first == again, first == other)
	// Output:
	// 65536 true false
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/payload"
)

func ExampleBuildFiles() {
	v := &corev1.Volume{Name: "config"}
	v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}}
	in := payload.Inputs{ConfigMaps: map[string]*corev1.ConfigMap{"app": {Data: map[string]string{"app.conf": "port = 80"}}}}
	files, err := payload.BuildFiles(&corev1.Pod{}, v, in)
	f := files["app.conf"]
	fmt.Printf("%s %v %v\n", f.Data, f.Mode, err)
	// Output:
	// port = 80 -rw-r--r-- <nil>
}

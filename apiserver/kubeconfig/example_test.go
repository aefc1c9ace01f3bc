// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"fmt"

	"github.com/seed81659283/nodeagent/apiserver/kubeconfig"
)

func ExampleLoad() {
	_, err := kubeconfig.Load("/etc/kubernetes/none.conf")
	fmt.Println(err)
	// Output: kubeconfig /etc/kubernetes/none.conf: no such file or directory
}

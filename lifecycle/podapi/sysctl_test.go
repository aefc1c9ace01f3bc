// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

func TestForbiddenSysctls(t *testing.T) {
	allowed := []string{"kernel.msg*", "net/ipv4/tcp_max_syn_backlog", "user.*"}
	for spec, want := range map[string]string{
		"":                                                 "",
		"securityContext: {sysctls: []}":                   "",
		sysctl("net.ipv4.tcp_syncookies"):                  "",
		sysctl("net/ipv4/tcp_syncookies"):                  "",
		sysctl("kernel.msgmax"):                            "",
		sysctl("net.ipv4.tcp_max_syn_backlog"):             "",
		sysctl("kernel.shmmax"):                            "spec.securityContext.sysctls[0].name: Forbidden: \"kernel.shmmax\" not allowlisted",
		sysctl("net.ipv4.tcp_syncookies2"):                 "spec.securityContext.sysctls[0].name: Forbidden: \"net.ipv4.tcp_syncookies2\" not allowlisted",
		sysctl("user.max_user_namespaces"):                 "spec.securityContext.sysctls[0].name: Forbidden: \"user.max_user_namespaces\" not allowed with host User enabled",
		"{hostIPC: true, " + sysctl("kernel/msgmax") + "}": "spec.securityContext.sysctls[0].name: Forbidden: \"kernel.msgmax\" not allowed with host IPC enabled",
		"{hostNetwork: true, " + sysctl("net.ipv4.tcp_syncookies") + "}": "spec.securityContext.sysctls[0].name: Forbidden: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled",
		"{hostUsers: false, " + sysctl("user.max_user_namespaces") + "}": "",
	} {
		assert.Equal(t, want, firstError(podapi.ForbiddenSysctls(podtest.Pod(t, spec), allowed)), spec)
	}
	assert.NotEmpty(t, podapi.ForbiddenSysctls(podtest.Pod(t, sysctl("kernel.msgmax")), nil))
}

func sysctl(name string) string {
	return "securityContext: {sysctls: [{name: " + name + ", value: x}]}"
}

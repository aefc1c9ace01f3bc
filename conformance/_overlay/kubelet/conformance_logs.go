// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"net/url"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
)

// ConformanceQuery is the result of a query for logs of the node.
type ConformanceQuery struct {
	Unreadable, Invalid string
	Services, Files     []string
	Arguments           []string // arguments of journalctl; nil unless the query is valid and for services
}

// ConformanceLogQuery parses and validates a query for logs of the node, whose host has no log files.
func ConformanceLogQuery(values url.Values) (q ConformanceQuery) {
	n, errs := newNodeLogQuery(values)
	if q.Unreadable = conformanceText(errs); q.Unreadable != "" || n == nil {
		return q
	}
	q.Services, q.Files = n.Services, n.Files
	if q.Invalid = conformanceText(n.validate()); q.Invalid == "" && len(n.Services) > 0 {
		_, q.Arguments, _, _ = getLoggingCmd(n, n.Services)
	}
	return q
}

// conformanceText returns the text of errs, or "" if there are no errors.
func conformanceText(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

// ConformanceLogContainer returns the ID of the container instance whose log the kubelet returns. If previous is true, this
// is the instance before the current one. If there is no such instance, it returns the kubelet's error.
func ConformanceLogContainer(ctx context.Context, status *v1.PodStatus, pod, container string, previous bool) (string, error) {
	id, err := (&Kubelet{}).validateContainerLogStatus(klog.FromContext(ctx), pod, status, container, previous)
	return id.String(), err
}

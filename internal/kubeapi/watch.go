// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch starts a watch. The watch ends when ctx ends, after opts.TimeoutSeconds, or after 3 minutes without an event. The
// caller must call Stop of the result. Most callers use a [Store] instead.
func (r Resource[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if !r.isUsable() {
		return nil, errNoClient
	}
	opts.Watch = true
	ctx = logr.NewContext(ctx, r.client.log)
	request := r.setPath(r.client.rest[r.kind.gv].Get(), "", nil).VersionedParams(&opts, r.client.params).MaxRetries(0)
	w, err := request.Watch(ctx)
	if err != nil {
		return nil, r.wrapError("watch", "", err)
	}
	return w, nil
}

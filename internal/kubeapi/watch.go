// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch begins a watch, which ends with ctx, after o.TimeoutSeconds, or when it says nothing for 3 minutes. Whoever takes
// it has to stop it. Most callers want a [Store].
func (r Resource[T]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !r.isUsable() {
		return nil, errNoClient
	}
	o.Watch = true
	ctx = logr.NewContext(ctx, r.client.log)
	request := r.setPath(r.client.rest[r.kind.gv].Get(), "", nil).VersionedParams(&o, r.client.params).MaxRetries(0)
	w, err := request.Watch(ctx)
	if err != nil {
		return nil, r.wrapError("watch", "", err)
	}
	return w, nil
}

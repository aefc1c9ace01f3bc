// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// paging chooses the number of objects per page of a list, so that each page stays within [MaxList] bytes.
type paging struct {
	limit int64 // objects of the next page; zero: no page was requested yet
}

// nextSize returns the number of objects of the next page.
func (p *paging) nextSize() int64 {
	if p.limit == 0 {
		p.limit = pageSize
	}
	return p.limit
}

// halveSize halves the number of objects per page of a list. It returns false if a page already has only one object.
func (p *paging) halveSize() bool {
	if p.nextSize() == 1 {
		return false
	}
	p.limit /= 2
	return true
}

// growSize doubles the number of objects per page of a list, up to pageSize, unless the last page was large.
func (p *paging) growSize(lastBytes, maxBytes int64) {
	if lastBytes <= maxBytes/4 {
		p.limit = min(2*p.nextSize(), pageSize)
	}
}

// listMetadata reads only the metadata of a page of a list, for an object that is too large to be read.
func (r Resource[T]) listMetadata(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	err := r.client.doWithRetry(ctx, func(ctx context.Context) error {
		request := r.setPath(r.client.rest[r.kind.gv].Get().VersionedParams(&opts, r.client.params), "", nil).MaxRetries(0)
		body, err := request.SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
		if err == nil && json.Unmarshal(body, list) != nil {
			err = errUndecodable
		}
		return sanitizeError(err, ctx.Err(), r.kind.secret)
	})
	if err == nil && (list.Kind != "PartialObjectMetadataList" || list.ResourceVersion == "" || len(list.Items) > 1) {
		err = errUndecodable
	}
	return list, r.wrapError("list", "", err)
}

// nextPage reads the next page of a list, smaller if the response is too large. If one object is too large, skipped has its
// previous row.
func (r *reflection[T, V]) nextPage(ctx context.Context, opts *metav1.ListOptions) (page Page[T], skipped rows[V], err error) {
	for {
		page, err := r.table.resource.List(ctx, *opts)
		switch {
		case err == nil:
			if opts.Limit > 0 {
				r.paging.growSize(page.Size, r.table.resource.client.maxList)
			}
			return page, nil, nil
		case !isTooLarge(err):
			return page, nil, err
		case opts.Limit == 0: // a list at an exact version; pages have the newest version
			opts.ResourceVersion = ""
		case !r.paging.halveSize():
			return r.skipOversized(ctx, *opts, err)
		}
		opts.Limit = r.paging.nextSize()
	}
}

// skipOversized reports an object that is too large, and returns an empty page in its place. skipped has the object's
// previous row.
func (r *reflection[T, V]) skipOversized(ctx context.Context, opts metav1.ListOptions, cause error) (page Page[T], skipped rows[V], err error) {
	list, err := r.table.resource.listMetadata(ctx, opts)
	if err != nil {
		return Page[T]{}, nil, fmt.Errorf("%w; its name: %w", cause, err)
	}
	page = Page[T]{ResourceVersion: list.ResourceVersion, Continue: list.Continue}
	var kept rows[V]
	for i := range list.Items {
		key := Key(list.Items[i].Namespace, list.Items[i].Name)
		if row, was := r.table.getRow(key); was {
			kept = append(kept, row)
		}
		r.table.recordFailure(&Error{Verb: "list", Resource: r.table.resource.kind.resource, Name: key, Err: fmt.Errorf(
			"%w: more than %d bytes: it is passed over", ErrTooLarge, r.table.resource.client.maxList)})
	}
	return page, kept, nil
}

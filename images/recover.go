// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/reference"
)

// Recover completes the records of pulls that a previous agent did not finish. Such an image counts as pulled with unknown
// credentials: a pod can use it only after a pull with its own. Call Recover once, before the first Ensure. The error
// reports unreadable records; all other records are completed.
func (p *Puller) Recover(ctx context.Context) error {
	if p.pullRecords == nil {
		return nil
	}
	intents := map[string][]string{} // image names of intents by their full names
	err := visitRecords(p.pullRecords.intentDir, func(_ string, data []byte) error {
		i, err := decodeIntent(data)
		if err != nil {
			return err
		}
		ref, err := reference.Parse(i.Image)
		if err != nil {
			return err
		}
		intents[ref.Identity()] = append(intents[ref.Identity()], i.Image)
		return nil
	})
	if len(intents) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	present, listErr := callOrAbandon(ctx, p, cancellableCall[[]cri.Image]{name: "ListImages", identity: "ListImages", run: p.images.ListImages})
	if listErr != nil {
		return fmt.Errorf("recover pulls: %w", listErr)
	}
	for _, image := range present {
		for _, name := range slices.Concat(image.RepoDigests, image.RepoTags) {
			ref, parseErr := reference.Parse(name)
			if parseErr != nil {
				continue // such a name is in no intent
			}
			for _, name := range intents[ref.Identity()] {
				if err := p.pullRecords.recordUnknownCredentials(name, image.ID, time.Now()); err != nil {
					p.reportError(fmt.Errorf("recover the pull of image %q: %w", name, err))
				}
			}
		}
	}
	return err
}

// recordUnknownCredentials records the image with this ID as pulled, but without credentials. It removes the intent, the
// record of the started pull.
func (s *recordStore) recordUnknownCredentials(image, id string, now time.Time) error {
	ref, err := reference.Parse(image)
	if err != nil {
		return err
	}
	return s.recordPullSuccess(image, ref.Short, id, recordedCredentials{}, now)
}

// Prune removes the records of images that no longer exist; call it after images were removed. present must contain all
// images of the node, and listed is the time before they were listed. Records written after that time stay.
func (p *Puller) Prune(present []cri.Image, listed time.Time) error {
	if p.pullRecords == nil {
		return nil
	}
	ids := make(map[string]bool, len(present))
	for _, image := range present {
		ids[image.ID] = true
	}
	return p.pullRecords.pruneRecords(ids, listed)
}

// pruneRecords removes the records of images whose IDs are not in present.
func (s *recordStore) pruneRecords(present map[string]bool, listed time.Time) error {
	s.recordMu.Lock()
	defer s.recordMu.Unlock()
	return visitRecords(s.pulledDir, func(path string, data []byte) error {
		record, err := decodePulledRecord(data)
		if err != nil {
			return err
		}
		// Times in records have no fractions of a second.
		// An image may have been pulled since the images were listed.
		if present[record.ImageRef] || !record.LastUpdatedTime.Before(listed.Truncate(time.Second)) {
			return nil
		}
		return removeFile(path)
	})
}

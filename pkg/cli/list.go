// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// listOptions are what the command line says about a list.
type listOptions struct {
	*connection
	out           *output
	allNamespaces bool
	mine          bool
	claimedBy     string
	selector      string
}

func newListCommand(c *connection) *cobra.Command {
	o := &listOptions{connection: c}
	command := &cobra.Command{
		Use:   "list",
		Short: "List who holds which sandboxes",
		Long: "List claims with their sandboxes, a line for each sandbox, and the sandboxes that have\n" +
			"outlived their claims, for those who may list sandboxes (status " + stateClaimGone + ").",
		Example: "  # What you hold\n" +
			"  %[1]s list --mine\n\n" +
			"  # What everyone holds, everywhere\n" +
			"  %[1]s list -A -o wide",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.mine && o.claimedBy != "" {
				return errors.New("--mine and --claimed-by exclude each other")
			}
			return o.run(cmd.Context())
		},
	}
	c.nameProgram(command)
	flags := command.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List all namespaces.")
	flags.BoolVar(&o.mine, "mine", false, "List only what you hold.")
	flags.StringVar(&o.claimedBy, "claimed-by", "", "List only what the user of this name holds.")
	flags.StringVarP(&o.selector, "selector", "l", "", "Label selector of the claims to list. Sandboxes without a claim are then omitted.")
	o.out = newOutput(command, c.Out, "")
	return command
}

func (o *listOptions) run(ctx context.Context) error {
	printer, err := o.out.printer()
	if err != nil {
		return err
	}
	s, err := o.open()
	if err != nil {
		return err
	}
	if o.allNamespaces {
		s.namespace = metav1.NamespaceAll
	}
	user := o.claimedBy
	if o.mine {
		if user, err = s.whoAmI(ctx); err != nil {
			return err
		}
	}
	held, err := o.holdings(ctx, s, user)
	if err != nil {
		return err
	}
	if user != "" {
		held = held.of(user)
	}
	if !o.out.table() {
		return printAll(o.out, printer, held.objects())
	}
	if len(held.objects()) == 0 {
		o.say("no sandboxes are claimed%s", where(s.namespace))
		return nil
	}
	return printer.PrintObj(held.table(clock.RealClock{}.Now(), o.allNamespaces), o.Out)
}

// holdings reads the sandboxes, of a user if one is named, first: one that is bound in
// between is not taken for one without a claim.
func (o *listOptions) holdings(ctx context.Context, s *session, user string) (holdings, error) {
	var claimed []*v1alpha1.Sandbox
	if o.selector == "" {
		var err error
		if claimed, err = s.claimedSandboxes(ctx, user); err != nil && !apierrors.IsForbidden(err) {
			return holdings{}, err
		}
	}
	claims, err := s.claims(ctx, o.selector)
	return newHoldings(claims, claimed), err
}

// claims lists claims in pages.
func (s *session) claims(ctx context.Context, selector string) ([]*v1alpha1.SandboxClaim, error) {
	return listed[*v1alpha1.SandboxClaim](ctx, selector, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return s.agents.SandboxClaims(s.namespace).List(ctx, options)
	})
}

// claimedSandboxes lists the sandboxes that are claimed, by a user if one is named, in
// pages.
func (s *session) claimedSandboxes(ctx context.Context, user string) ([]*v1alpha1.Sandbox, error) {
	selector := labels.Set{v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue}
	if user != "" {
		selector[v1alpha1.LabelClaimedBy] = v1alpha1.ClaimedByLabel(user)
	}
	return listed[*v1alpha1.Sandbox](ctx, selector.String(), func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return s.agents.Sandboxes(s.namespace).List(ctx, options)
	})
}

// listed collects the objects of a list that is read in pages.
func listed[T runtime.Object](ctx context.Context, selector string, page pager.ListPageFunc) ([]T, error) {
	var objects []T
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(object runtime.Object) error {
		one, ok := object.(T)
		if !ok {
			return fmt.Errorf("the list has a %T", object)
		}
		objects = append(objects, one)
		return nil
	})
	return objects, err
}

// whoAmI is the name of the user whom the server sees.
func (s *session) whoAmI(ctx context.Context) (string, error) {
	review, err := s.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return "", errors.New("this server does not say who you are: use --claimed-by with the name of a user")
	}
	if err != nil {
		return "", fmt.Errorf("finding out who you are: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

func where(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return ""
	}
	return " in namespace " + namespace
}

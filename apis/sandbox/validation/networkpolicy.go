// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"net/netip"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxPolicyItems bounds each list of a network policy. The rules for one sort of
// sandbox are a handful.
const maxPolicyItems = 256

var (
	networkPolicyManagements = []v1alpha1.NetworkPolicyManagement{v1alpha1.NetworkPolicyManaged, v1alpha1.NetworkPolicyUnmanaged}
	networkProtocols         = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
)

// validateNetworkPolicy checks what differs from old. The rules are those of
// kube-apiserver for a NetworkPolicy, which no library has.
func validateNetworkPolicy(spec, old *v1alpha1.SandboxTemplateSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if management := spec.NetworkPolicyManagement; management != "" && management != old.NetworkPolicyManagement {
		errs = append(errs, validateEnum(management, networkPolicyManagements, path.Child("networkPolicyManagement"))...)
	}
	if spec.NetworkPolicy == nil || reflect.DeepEqual(spec.NetworkPolicy, old.NetworkPolicy) {
		return errs
	}
	path = path.Child("networkPolicy")
	ingress, egress := spec.NetworkPolicy.Ingress, spec.NetworkPolicy.Egress
	errs = append(errs, eachOf(ingress, path.Child("ingress"), func(rule *networkingv1.NetworkPolicyIngressRule, path *field.Path) field.ErrorList {
		return validateRule(rule.Ports, rule.From, path, "from")
	})...)
	return append(errs, eachOf(egress, path.Child("egress"), func(rule *networkingv1.NetworkPolicyEgressRule, path *field.Path) field.ErrorList {
		return validateRule(rule.Ports, rule.To, path, "to")
	})...)
}

func eachOf[T any](list []T, path *field.Path, validate func(*T, *field.Path) field.ErrorList) field.ErrorList {
	if len(list) > maxPolicyItems {
		return field.ErrorList{field.TooMany(path, len(list), maxPolicyItems)}
	}
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, validate(&list[i], path.Index(i))...)
	}
	return errs
}

func validateRule(
	ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, path *field.Path, peersName string,
) field.ErrorList {
	errs := eachOf(ports, path.Child("ports"), validatePolicyPort)
	return append(errs, eachOf(peers, path.Child(peersName), validatePeer)...)
}

func validatePolicyPort(port *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if port.Protocol != nil {
		errs = append(errs, validateEnum(*port.Protocol, networkProtocols, path.Child("protocol"))...)
	}
	endPath := path.Child("endPort")
	switch {
	case port.Port == nil:
		if port.EndPort != nil {
			errs = append(errs, field.Required(path.Child("port"), "must be specified when endPort is specified"))
		}
	case port.Port.Type == intstr.String:
		for _, msg := range validation.IsValidPortName(port.Port.StrVal) {
			errs = append(errs, field.Invalid(path.Child("port"), port.Port.StrVal, msg))
		}
		if port.EndPort != nil {
			errs = append(errs, field.Invalid(endPath, *port.EndPort, "may not be specified when port is a name"))
		}
	default:
		number := port.Port.IntVal
		for _, msg := range validation.IsValidPortNum(int(number)) {
			errs = append(errs, field.Invalid(path.Child("port"), number, msg))
		}
		if port.EndPort == nil {
			return errs
		}
		if *port.EndPort < number {
			errs = append(errs, field.Invalid(endPath, *port.EndPort, "must be greater than or equal to port"))
		}
		for _, msg := range validation.IsValidPortNum(int(*port.EndPort)) {
			errs = append(errs, field.Invalid(endPath, *port.EndPort, msg))
		}
	}
	return errs
}

func validatePeer(peer *networkingv1.NetworkPolicyPeer, path *field.Path) field.ErrorList {
	if peer.PodSelector == nil && peer.NamespaceSelector == nil && peer.IPBlock == nil {
		return field.ErrorList{field.Required(path, "must specify a peer")}
	}
	errs := validateSelector(peer.PodSelector, path.Child("podSelector"))
	errs = append(errs, validateSelector(peer.NamespaceSelector, path.Child("namespaceSelector"))...)
	if peer.IPBlock == nil {
		return errs
	}
	if peer.PodSelector != nil || peer.NamespaceSelector != nil {
		errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
	}
	return append(errs, validateIPBlock(peer.IPBlock, path.Child("ipBlock"))...)
}

func validateSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

func validateIPBlock(block *networkingv1.IPBlock, path *field.Path) field.ErrorList {
	if block.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	if errs := validation.IsValidCIDR(path.Child("cidr"), block.CIDR); len(errs) > 0 {
		return errs
	}
	outer, outerErr := netip.ParsePrefix(block.CIDR)
	return eachOf(block.Except, path.Child("except"), func(except *string, path *field.Path) field.ErrorList {
		if errs := validation.IsValidCIDR(path, *except); len(errs) > 0 {
			return errs
		}
		inner, err := netip.ParsePrefix(*except)
		if err != nil || outerErr != nil {
			return nil // in a form that only the library knows: for the cluster to judge
		}
		if inner.Bits() <= outer.Bits() || !outer.Contains(inner.Addr()) {
			return field.ErrorList{field.Invalid(path, *except, "must be a strict subset of cidr")}
		}
		return nil
	})
}

// NetworkPolicyWarnings names rules that a template does not apply.
func NetworkPolicyWarnings(spec *v1alpha1.SandboxTemplateSpec) []string {
	if spec.NetworkPolicy == nil || spec.NetworkPolicyManagement != v1alpha1.NetworkPolicyUnmanaged {
		return nil
	}
	return []string{specPath.Child("networkPolicy").String() + ": is not applied, because networkPolicyManagement is Unmanaged"}
}

// NetworkPolicyUpdateWarnings says what a change means for sandboxes that run: the
// policy holds for them at once, while the name servers that go with the default are
// for those that are made from then on.
func NetworkPolicyUpdateWarnings(spec, old *v1alpha1.SandboxTemplateSpec) []string {
	if !isSecureDefault(spec) || isSecureDefault(old) {
		return nil
	}
	return []string{specPath.Child("networkPolicyManagement").String() +
		": sandboxes of this template that run already lose the name servers of the cluster at once, and get no others until they are made anew"}
}

// isSecureDefault reports whether the policy is the one without rules of the template.
func isSecureDefault(spec *v1alpha1.SandboxTemplateSpec) bool {
	return spec.NetworkPolicyManagement == v1alpha1.NetworkPolicyManaged && spec.NetworkPolicy == nil
}

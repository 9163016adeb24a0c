"""Writes the tables of crates/ops/src/pointwise/samples/table.rs: values of the pointwise functions by mpmath.

Run: python3 pointwise_table.py > ../src/pointwise/samples/table.rs, then cargo fmt.
"""
print("//! Written by crates/ops/scripts/pointwise_table.py (mpmath, 40 digits).\n\nuse crate::pointwise::{BinaryFn, UnaryFn};\n")
from mpmath import *  # noqa: F403
mp.dps=40
def r(x): return float(x)
U={
'Relu':(lambda x:x if x>0 else 0,[-1.5,0.25,2.0]),
'Abs':(abs,[-1.5,0.25,2.0]),'Neg':(lambda x:-x,[-1.5,0.25]),
'Exp':(exp,[-1.5,0.25,2.0]),'Expm1':(expm1,[-1.5,1e-3,2.0]),'Log':(log,[0.25,1.5,8.0]),'Log1p':(log1p,[-0.25,1e-3,2.0]),
'Sqrt':(sqrt,[0.25,3.0]),'Rsqrt':(lambda x:1/sqrt(x),[0.25,3.0]),'Square':(lambda x:x*x,[-1.5,0.25]),'Recip':(lambda x:1/x,[-1.5,0.25]),
'Sin':(sin,[-1.5,0.25,2.0]),'Cos':(cos,[-1.5,0.25,2.0]),'Tan':(tan,[-1.25,0.25,2.0]),'Asin':(asin,[-0.75,0.25]),'Acos':(acos,[-0.75,0.25]),'Atan':(atan,[-1.5,0.25]),
'Sinh':(sinh,[-1.5,0.25]),'Cosh':(cosh,[-1.5,0.25]),'Tanh':(tanh,[-1.5,0.25,2.0]),'Asinh':(asinh,[-1.5,0.25]),'Acosh':(acosh,[1.5,4.0]),'Atanh':(atanh,[-0.75,0.25]),
'Sigmoid':(lambda x:1/(1+exp(-x)),[-1.5,0.25,2.0]),'Logsigmoid':(lambda x:-log1p(exp(-x)),[-1.5,0.25,2.0]),'Softplus':(lambda x:log1p(exp(x)),[-1.5,0.25,2.0]),
'Silu':(lambda x:x/(1+exp(-x)),[-1.5,0.25,2.0]),'Gelu':(lambda x:x*(1+erf(x/sqrt(2)))/2,[-1.5,0.25,2.0]),
'GeluTanh':(lambda x:x*(1+tanh(sqrt(2/pi)*(x+mpf('0.044715')*x**3)))/2,[-1.5,0.25,2.0]),
'Erf':(erf,[-1.5,0.25,2.0]),'Erfc':(erfc,[-1.5,0.25,2.0]),'Erfinv':(erfinv,[-0.75,0.25,0.9375]),'Erfcinv':(lambda x:erfinv(1-x),[0.0625,0.75,1.5]),
'Relu6':(lambda x:min(max(x,0),6),[-1.5,0.25,7.5]),'Hsigmoid':(lambda x:min(max(x+3,0),6)/6,[-4.5,0.25,1.5,3.5]),'Hswish':(lambda x:x*min(max(x+3,0),6)/6,[-4.5,0.25,-2.0,3.5]),
'Mish':(lambda x:x*tanh(log1p(exp(x))),[-1.5,0.25,2.0]),'Softsign':(lambda x:x/(1+abs(x)),[-1.5,0.25,2.0]),
'Log2':(lambda x:log(x)/log(2),[0.25,1.5,8.0]),'Log10':(log10,[0.25,1.5,8.0]),'Exp2':(lambda x:2**x,[-1.5,0.25,2.0]),
'Lgamma':(lambda x:log(abs(gamma(x))),[-1.5,0.25,4.5]),'Digamma':(digamma,[-1.5,0.25,12.5]),
'I0':(lambda x:besseli(0,x),[-1.5,0.25,9.0]),'I0e':(lambda x:exp(-abs(x))*besseli(0,x),[-1.5,0.25,9.0]),
'I1':(lambda x:besseli(1,x),[-1.5,0.25,9.0]),'I1e':(lambda x:exp(-abs(x))*besseli(1,x),[-1.5,0.25,9.0]),
'J0':(lambda x:besselj(0,x),[-1.5,0.25,9.0]),'J1':(lambda x:besselj(1,x),[-1.5,0.25,9.0]),
}
def sg(x): return 1/(1+exp(-x))
def phi(x): return exp(-x*x/2)/sqrt(2*pi)
def Phi(x): return (1+erf(x/sqrt(2)))/2
B={
'Add':(lambda a,b:a+b,0),'Sub':(lambda a,b:a-b,0),'Mul':(lambda a,b:a*b,0),'Div':(lambda a,b:a/b,0),
'Rem':(lambda a,b:a-b*floor(a/b),0),'Pow':(lambda a,b:a**b,1),'Max':(max,0),'Min':(min,0),'Atan2':(atan2,0),'LogAddExp':(lambda a,b:log(exp(a)+exp(b)),0),
'Hypot':(hypot,0),'Fmod':(lambda a,b:a-b*(floor(a/b) if a/b>0 else ceil(a/b)),0),'Copysign':(lambda a,b:abs(a)*sign(b),0),
'Zeta':(lambda a,b:zeta(a,b),5),'GammaInc':(lambda a,b:gammainc(a,0,b,regularized=True),5),'GammaIncc':(lambda a,b:gammainc(a,b,regularized=True),5),
'GammaSlope':(lambda a,b:-diff(lambda v:gammainc(v,0,b,regularized=True),a)/diff(lambda v:gammainc(a,0,v,regularized=True),b),5),
'GammaLogSlope':(lambda a,b:-diff(lambda v:gammainc(v,0,exp(b),regularized=True),a)/diff(lambda v:gammainc(a,0,exp(v),regularized=True),b),1),
'DivOrZero':(lambda a,b:a/b,0),'BceWithLogits':(lambda a,b:log1p(exp(a))-a*b,0),'BceSlope':(lambda a,b:sg(a)-b,0),
'Prelu':(lambda a,b:a if a>0 else a*b,0),'PowSlopeA':(lambda a,b:b*a**(b-1),1),'PowSlopeB':(lambda a,b:a**b*log(a),1),'PreluSlope':(lambda a,b:1 if a>0 else b,0),
'Bce':(lambda a,b:-b*log(a)-(1-b)*log(1-a),4),'BceProbSlope':(lambda a,b:(a-b)/(a*(1-a)),4),
'Huber':(lambda a,b:a*a/2 if abs(a)<=b else b*(abs(a)-b/2),1),'HuberSlope':(lambda a,b:min(max(a,-b),b),1),
'Elu':(lambda a,b:a if a>0 else b*expm1(a),0),'EluSlope':(lambda a,b:1 if a>0 else b*exp(a),0),
'ReluGrad':(lambda a,b:a if b>0 else 0,0),'AbsGrad':(lambda a,b:a*sign(b),0),'Relu6Grad':(lambda a,b:a if 0<b<6 else 0,0),'HsigmoidGrad':(lambda a,b:a/6 if -3<b<3 else 0,0),'HswishGrad':(lambda a,b:a*(2*b+3)/6 if -3<b<3 else (a if b>=3 else 0),0),
'Expm1Grad':(lambda a,b:a*(b+1),0),'Log1pGrad':(lambda a,b:a/(1+b),1),'SqrtGrad':(lambda a,b:a/(2*b),1),'RsqrtGrad':(lambda a,b:-a*b**3/2,1),'SquareGrad':(lambda a,b:2*a*b,0),'RecipGrad':(lambda a,b:-a*b*b,0),'TanGrad':(lambda a,b:a*(1+b*b),0),
'AsinGrad':(lambda a,b:a/sqrt(1-b*b),2),'AtanGrad':(lambda a,b:a/(1+b*b),0),'TanhGrad':(lambda a,b:a*(1-b*b),0),'AsinhGrad':(lambda a,b:a/sqrt(1+b*b),0),'AcoshGrad':(lambda a,b:a/sqrt(b*b-1),3),'AtanhGrad':(lambda a,b:a/(1-b*b),2),
'SigmoidGrad':(lambda a,b:a*b*(1-b),0),'LogsigmoidGrad':(lambda a,b:a*sg(-b),0),'SoftplusGrad':(lambda a,b:a*sg(b),0),'SiluGrad':(lambda a,b:a*(sg(b)*(1+b*(1-sg(b)))),0),
'MishGrad':(lambda a,b:a*diff(lambda x:x*tanh(log1p(exp(x))),b),1),'SoftsignGrad':(lambda a,b:a/(1+abs(b))**2,0),
'GeluGrad':(lambda a,b:a*(Phi(b)+b*phi(b)),0),'GeluTanhGrad':(lambda a,b:a*diff(lambda x:x*(1+tanh(sqrt(2/pi)*(x+mpf('0.044715')*x**3)))/2,b),0),
'ErfGrad':(lambda a,b:a*2/sqrt(pi)*exp(-b*b),0),'ErfinvGrad':(lambda a,b:a*sqrt(pi)/2*exp(b*b),0),
}
AB=[([1.5,-0.75,2.5],[0.625,2.0,-1.125]),([1.5,0.75,2.5],[0.5,2.0,1.25]),([1.5,-0.75,2.5],[0.5,-0.25,-0.75]),([1.5,-0.75,2.5],[1.5,2.0,1.25]),([0.25,0.75,0.625],[0.125,0.25,0.875]),([1.5,2.25,3.5],[0.625,2.0,9.5])]
def lit(v):
    s=repr(float(v))
    if 'e' not in s and '.' not in s: s+='.0'
    # digit groups for clippy unreadable_literal not in default set
    return s
print("/// Function, inputs, values.\npub(super) const UNARY: &[(UnaryFn, &[f64], &[f64])] = &[")
for k,(f,xs) in U.items():
    print(f"    (UnaryFn::{k}, &[{', '.join(map(lit,xs))}], &[{', '.join(lit(f(mpf(x))) for x in xs)}]),")
print("];\n\n/// Function, which operands of [`OPERANDS`], values.\npub(super) const BINARY: &[(BinaryFn, usize, [f64; 3])] = &[")
for k,(f,i) in B.items():
    print(f"    (BinaryFn::{k}, {i}, [{', '.join(lit(f(mpf(a),mpf(b))) for a,b in zip(*AB[i]))}]),")
print("];\n\n/// Operands within the domains: any, positive second and first, second within -1 .. 1, second above 1, both within 0 .. 1, first above 1 and second positive.\npub(super) const OPERANDS: [([f64; 3], [f64; 3]); 6] = [")
for a,b in AB: print(f"    ([{', '.join(map(lit,a))}], [{', '.join(map(lit,b))}]),")
print("];")
